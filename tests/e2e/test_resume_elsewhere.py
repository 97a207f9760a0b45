"""A stream of the client whose server is killed goes on at another one."""

import psutil

from sluicegate_client import Client, GenerateOptions, Retry, SluicegateError
from tests.e2e.server import Server, serving

CHAT = [{"role": "user", "content": "Tell me a long story about a fox."}]
OPTIONS: GenerateOptions = {"n": 2, "temperature": 1, "seed": 11, "max_tokens": 150, "ignore_eos": True, "logprobs": 1}


def test_a_stream_outlives_its_server() -> None:
    """What comes of two sequences, first from one server and then from the other, is what one would answer."""
    breaks: list[SluicegateError] = []
    with serving(quantization="auto") as first, serving(quantization="auto") as second:
        retry = Retry(on_wait=lambda error, _: breaks.append(error))
        with Client(f"ipv4:{first.address},{second.address}", retry=retry) as client:
            stream = client.stream(chat=CHAT, resume=True, **OPTIONS)
            deltas = [next(stream) for _ in range(20)]
            victim, survivor = (first, second) if first.load().num_running else (second, first)
            _kill(victim)
            deltas += stream
        with Client(survivor.address) as client:
            alone = client.generate(chat=CHAT, **OPTIONS)
    assert len(breaks) == 1
    for output in alone.outputs:
        parts = [delta for delta in deltas if delta.index == output.index]
        assert "".join(part.text for part in parts) == output.text
        assert [token for part in parts for token in part.token_ids] == output.token_ids
        assert [each for part in parts for each in part.logprobs] == output.logprobs


def _kill(server: Server) -> None:
    parent = psutil.Process(server.process.pid)
    for process in [parent, *parent.children(recursive=True)]:
        process.kill()
