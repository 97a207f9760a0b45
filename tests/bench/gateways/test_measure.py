"""Our own gateways, measured for a moment."""

import pytest

from bench.gateways.contender import OURS, Contender, ContenderError, ours
from bench.gateways.measure import Load, measure
from tests.model_files import SMOLLM2_FOLDER


@pytest.mark.parametrize("contender", OURS, ids=lambda contender: contender.name)
def test_every_stream_is_counted(contender: Contender) -> None:
    """All tokens of all streams arrive, and none before the core has made it."""
    figures = measure(contender, Load(3, 100.0, 30), SMOLLM2_FOLDER)
    assert figures.num_failed == 0
    assert figures.cpu_us_per_token > 0
    assert 0 <= figures.latency_p50_ms <= figures.latency_p99_ms


def test_a_gateway_that_does_not_start() -> None:
    """Its last words are in the error."""
    broken = ours("broken", OURS[0].api, "--no-such-flag")
    with pytest.raises(ContenderError, match="no-such-flag"):
        measure(broken, Load(1, 0.0, 1), SMOLLM2_FOLDER)
