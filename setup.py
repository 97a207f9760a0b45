"""The kernels in C++, one module for each instruction set; without a compiler the package is installed without them."""

import copy
import os
import platform

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    import pybind11
except ImportError:
    pybind11 = None  # and torch computes

_FOLDER = "core/native"
_SOURCES = ("attention", "decoder", "linear", "matrix", "module", "pool", "quantized_rows")
_INSTRUCTION_SETS = {
    "avx512": ("-march=x86-64-v4", "-mavx512vnni", "-mprefer-vector-width=512"),
    "avx2": ("-march=x86-64-v3",),
}
_FLAGS = ("-std=c++20", "-O3", "-g0", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=off")
# GCC finds much to say about its own headers of AVX-512.
_QUIET = ("-Wno-uninitialized", "-Wno-maybe-uninitialized")


def _kernels(name, flags):
    return Extension(
        f"core.native._{name}",
        [f"{_FOLDER}/{source}.cpp" for source in _SOURCES],
        depends=sorted(f"{_FOLDER}/{header}" for header in os.listdir(_FOLDER) if header.endswith(".h")),
        include_dirs=[pybind11.get_include()],
        define_macros=[("SLUICEGATE_MODULE", f"_{name}")],
        extra_compile_args=[*_FLAGS, *_QUIET, *flags],
        language="c++",
        optional=True,
    )


class BuildKernels(build_ext):
    """The same sources for every module: each has a folder of its own for what is compiled."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extension(self, ext):
        own = copy.copy(self)
        own.build_temp = os.path.join(self.build_temp, ext.name)
        build_ext.build_extension(own, ext)


_can_build = pybind11 is not None and platform.machine() in ("x86_64", "AMD64")
setup(
    ext_modules=[_kernels(*item) for item in _INSTRUCTION_SETS.items()] if _can_build else [],
    cmdclass={"build_ext": BuildKernels},
)
