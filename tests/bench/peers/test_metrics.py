"""Ours against the best other of its family."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bench.load import RequestRecord
from bench.peers.limits import ModelSize, Rates
from bench.peers.measure import Round
from bench.peers.metrics import compare, medians
from bench.peers.peer import Engine, Family, Peer, Place
from bench.peers.report import Report
from bench.statistics import Summary, summarize

RATES = Rates(read_bytes_per_s=1e9, float32_flops=1e12, int8_ops=4e12)
MODEL = ModelSize(1, 8, 8, 1000, 1000, 1000)


@asynccontextmanager
async def never(_place: Place, _setup: str) -> AsyncIterator[Engine]:
    raise NotImplementedError
    yield


OURS = Peer("ours", Family.QUANTIZED, "", never, is_ours=True)
QUICK, SLOW = (Peer(name, Family.QUANTIZED, "", never) for name in ("quick", "slow"))
OF_ANOTHER_KIND = Peer("of another kind", Family.FLOAT32, "", never)
PEERS = OURS, QUICK, SLOW, OF_ANOTHER_KIND


def one_stream(itl_s: float) -> Summary:
    arrivals = [(1.0, 1), (1.0 + itl_s, 1), (1.0 + 2 * itl_s, 1)]
    return summarize([RequestRecord(0.0, arrivals[-1][0], arrivals, 128)])


def one_round(itl_s: float, start_s: float = 1.0) -> Round:
    return Round(start_s, {"1 gateway": 2_000_000, "2 core": 3_000_000}, {"W1": one_stream(itl_s)})


def test_medians_of_the_rounds() -> None:
    """Of what was measured, and of nothing else; memory is of all processes together."""
    figures = medians([one_round(0.1, 1.0), one_round(0.3, 5.0), one_round(0.2, 2.0)])
    assert figures["W1 ITL, ms"] == pytest.approx(200)
    assert figures["start, s"] == 2.0
    assert figures["memory, MB"] == 5.0
    assert not any(title.startswith("W2") for title in figures)


def test_ours_is_compared_with_the_best_of_its_family() -> None:
    """The ratio says how many times better it is, whether more is better or less."""
    itls_s = {"ours": 0.1, "quick": 0.2, "slow": 0.3, "of another kind": 0.01}
    figures = {name: medians([one_round(itl_s)]) for name, itl_s in itls_s.items()}
    compared = {each.metric.title: each for each in compare(PEERS, figures)}
    assert compared["W1 ITL, ms"].other == "quick"
    assert compared["W1 ITL, ms"].ratio == pytest.approx(2.0)
    assert compared["W1, tok/s"].ratio == pytest.approx((1.4 / 3) / (1.2 / 3))


def test_a_report_has_what_was_measured() -> None:
    """A peer without results is not in it."""
    report = Report(PEERS, {"ours": [one_round(0.1)], "quick": [one_round(0.2)], "slow": []}, RATES, MODEL)
    assert [peer.name for peer in report.peers] == ["ours", "quick"]
    assert [table.row_count for table in report.tables()] == [4, 2, 5]
    written = report.as_json()
    assert written["peers"]["quick"]["medians"]["W1 ITL, ms"] == pytest.approx(200)
    assert {each["ours"] for each in written["ratios"]} == {"ours"}


def test_a_report_is_drawn() -> None:
    """As a PNG, also where some workloads were not run."""
    pytest.importorskip("matplotlib")
    from bench.peers.plots import draw

    report = Report(PEERS, {"ours": [one_round(0.1)], "quick": [replace(one_round(0.2), passes={})]}, RATES, MODEL)
    assert draw(report).startswith(b"\x89PNG")
