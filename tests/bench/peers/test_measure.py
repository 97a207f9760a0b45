"""Our own server, measured for a moment."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers.measure import measure, share_of_round
from bench.peers.peer import Peer, PeerError, Place
from bench.peers.sluicegate import OURS
from bench.workload import WORKLOADS
from tests.model_files import SMOLLM2_FOLDER

SHORT_W1 = replace(WORKLOADS["W1"], prompt_tokens=8, output_tokens=4, num_requests=2)
SHORT_W4 = replace(
    WORKLOADS["W4"], prompt_tokens=40, shared_prefix_tokens=32, output_tokens=2, num_requests=2, concurrency=2
)


@pytest.mark.parametrize("peer", OURS, ids=lambda peer: peer.name)
async def test_one_round(peer: Peer, tmp_path: Path) -> None:
    """Every pass is there, the second finds the shared prefix cached, and all processes are counted."""
    told: list[str] = []
    done = await measure(peer, Place(tmp_path, SMOLLM2_FOLDER, 1), [SHORT_W1, SHORT_W4], 0, told.append)
    assert [*done.passes] == ["W1", "W4 cold", "W4 warm"]
    assert done.passes["W1"].num_cached_tokens == 0
    assert done.passes["W4 warm"].num_cached_tokens == 2 * 32
    assert len(done.peak_memory_bytes) == 2
    assert len(told) == 3


async def test_an_engine_that_does_not_start(tmp_path: Path) -> None:
    """Its last words are in the error."""
    with pytest.raises(PeerError, match="no-such-folder"):
        await measure(OURS[0], Place(tmp_path, tmp_path / "no-such-folder"), [SHORT_W1], 0, lambda _: None)


def test_a_single_stream_is_spread_over_the_rounds() -> None:
    """A batch is not."""
    assert share_of_round(WORKLOADS["W1"], 3).num_requests == 3
    assert share_of_round(WORKLOADS["W3"], 3).num_requests == 2
    assert share_of_round(WORKLOADS["W2"], 3) == WORKLOADS["W2"]
