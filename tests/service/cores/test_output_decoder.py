"""What is saved of a message with something broken in it."""

import msgspec
import pytest

from core.wire.codec import WireError
from service.cores.output_decoder import OutputDecoder

GOOD = ["good", [1, 2]]


@pytest.mark.parametrize(
    "broken",
    [
        ["bad", [1], None, None, None, 9],
        ["bad", ["x"]],
        ["bad"],
        ["bad", [1], [["<f8", [1], 1]]],
        ["bad", [1], None, None, None, None, None, [{"type": 7, "timestamp": 0.0}]],
    ],
)
def test_others_survive_one_broken_output(broken: list[object]) -> None:
    """A message with one broken output does not decode; salvaged, it gives the others, and the id of the broken one."""
    frames = [msgspec.msgpack.encode([0, [GOOD, broken, GOOD]])]
    decoder = OutputDecoder()
    with pytest.raises(WireError):
        decoder.decode(frames)
    outputs, broken_ids = decoder.salvage(frames)
    assert [output.new_token_ids for output in outputs.outputs] == [[1, 2], [1, 2]]
    assert broken_ids == ["bad"]


@pytest.mark.parametrize("frame", [b"", b"\xc1", b"\x91\x00", msgspec.msgpack.encode([0, [[7, [1]], 5, None]])])
def test_nothing_to_save(frame: bytes) -> None:
    """What holds no readable id gives nothing, and raises nothing."""
    outputs, broken_ids = OutputDecoder().salvage([frame])
    assert (outputs.outputs, broken_ids) == ([], [])


def test_broken_statistics_cost_no_output() -> None:
    """Statistics that do not decode are dropped; the outputs beside them are not."""
    outputs, broken_ids = OutputDecoder().salvage([msgspec.msgpack.encode([0, [GOOD], {"num_running_reqs": "x"}])])
    assert ([output.request_id for output in outputs.outputs], broken_ids) == (["good"], [])
