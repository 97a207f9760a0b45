#!/bin/sh
# slim.sh ENVIRONMENT: takes away what is never used at run time, and compiles what is.
set -eu
cd "$1"/lib/python3*/site-packages

# Tests of packages; what C++ programs would be built with; stubs for type checkers.
find . -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
find . -name '*.pyi' -delete
if [ -d torch ]; then
    rm -rf torch/include torch/share
    # `import torch` looks for this one; the others are tests and protoc.
    find torch/bin -type f ! -name torch_shm_manager -delete
    find torch/lib -name '*.a' -delete
    # Names of functions that only a debugger asks for: a fifth of the library.
    find torch/lib -name '*.so*' -exec strip --strip-unneeded {} +
fi

# Of the hundreds of models in transformers a server runs one, and compiles that when it starts; torch's own tests are
# in part for newer Pythons.
python3 -m compileall -q -x 'transformers/models/|torch/testing/_internal/' --invalidation-mode unchecked-hash .
