"""Requests to a container, from this machine, with the Python client."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from sluicegate_client import Client

PROMPT = "Once upon a time, in a village by the sea,"
MAX_TOKENS = 400


def answer(address: str, max_tokens: int = MAX_TOKENS) -> str:
    """Of the model, which takes its most likely tokens."""
    with Client(address) as client:
        return client.generate(PROMPT, max_tokens=max_tokens, temperature=0, ignore_eos=True, timeout=120).text


@dataclass(frozen=True)
class OpenStreams:
    """All have had a first delta."""

    texts: list[Future[str]]

    def read_to_the_end(self) -> list[str]:
        """Raises what the server answered in place of an end."""
        return [text.result(timeout=180) for text in self.texts]


@contextmanager
def open_streams(address: str, count: int, max_tokens: int = MAX_TOKENS) -> Iterator[OpenStreams]:
    """So many at once, all of the same request."""
    begun = threading.Semaphore(0)
    with Client(address) as client, ThreadPoolExecutor(count) as readers:

        def read() -> str:
            text = ""
            options = {"max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "timeout": 150}
            for delta in client.stream(PROMPT, **options):
                if not text:
                    begun.release()
                text += delta.text
            return text

        texts = [readers.submit(read) for _ in range(count)]
        for _ in texts:
            assert begun.acquire(timeout=60), "no first delta within a minute"
        yield OpenStreams(texts)
