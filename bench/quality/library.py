"""Models that other libraries run, in environments of ``bench.peers``."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np

import bench
from bench.peers.environment import PeerEnvironment
from bench.peers.library import converted
from bench.quality.window import Logits, Window


class LibraryError(Exception):
    """It ended; why is on standard error."""


class Library:
    """``bench.quality.drivers.run_DRIVER MODEL MAX_TOKENS`` in its environment, for the length of a ``with`` block."""

    def __init__(
        self, home: PeerEnvironment, driver: str, model: Path, max_tokens: int, variables: Mapping[str, str]
    ) -> None:
        self._process = subprocess.Popen(
            [str(home.python), "-m", f"bench.quality.drivers.run_{driver}", str(model), str(max_tokens)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(bench.__file__).parents[1]), **variables},
        )

    def logits(self, window: Window) -> Logits:
        """Raises LibraryError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory(prefix="bench-quality-") as folder:
            path = Path(folder, "logits.npy")
            passes = [[window.token_ids[position] for position in positions] for positions in window.passes()]
            print(json.dumps({"passes": passes, "path": str(path)}), file=self._process.stdin, flush=True)
            if not self._process.stdout.readline():
                raise LibraryError(f"it ended with {self._process.wait()}")
            logits: Logits = np.load(path)
            return logits

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._process.communicate()


def transformers(gguf: Path, max_tokens: int) -> Library:
    """In float32, on the dequantized weights."""
    home = PeerEnvironment("transformers")
    return Library(home, "transformers", converted(gguf, "dense", home), max_tokens, {})


def llama_cpp(gguf: Path, max_tokens: int) -> Library:
    """With the libraries of the server that ``bench.peers`` has built."""
    home = PeerEnvironment("llama-server")
    return Library(home, "llama", gguf, max_tokens, {"LLAMA_CPP_LIB_PATH": str(home.folder / "bin")})
