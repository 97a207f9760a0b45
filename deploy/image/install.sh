#!/bin/sh
# install.sh WHEEL: the project itself, into the environment that has all its packages.
set -eu
python -m pip install --no-cache-dir --no-compile --no-deps --no-index "$1"
python -m compileall -q --invalidation-mode unchecked-hash \
    "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" -x '/site-packages/(?!(core|service|sluicegate|sluicegate_client|bench)/)'
