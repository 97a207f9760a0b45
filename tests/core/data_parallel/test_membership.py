"""Who joins a group. That the ranks of one find each other is in test_processes."""

from typing import Any

import pytest

from core.data_parallel.membership import joined_group
from core.executor.fake import FakeExecutor
from core.wire.messages import EngineAddresses, EngineInit, ParallelConfig
from tests.core.builders import make_engine
from tests.core.data_parallel.ranks import LOCKSTEP_MODEL


def make_init(**parallel_config: Any) -> EngineInit:
    return EngineInit(EngineAddresses(["in"], ["out"]), ParallelConfig(**parallel_config))


def test_model_whose_ranks_are_independent() -> None:
    """It joins no group, however many ranks there are."""
    with joined_group(make_engine(), make_init(data_parallel_size=4), rank=1) as group:
        assert group is None


def test_single_rank() -> None:
    """A model that needs lockstep is alone with itself if there is one rank."""
    with joined_group(make_engine(executor=FakeExecutor(LOCKSTEP_MODEL)), make_init(), rank=0) as group:
        assert group is None


@pytest.mark.parametrize(
    ("rank", "config", "wrong"),
    [
        (
            2,
            {"data_parallel_master_ip": "127.0.0.1", "data_parallel_master_port": 1},
            r"rank must be in \[0, 1\], got 2",
        ),
        (1, {"data_parallel_master_port": 1}, "where they meet, it says data_parallel_master_ip None and port 1"),
        (1, {"data_parallel_master_ip": "h"}, "where they meet, it says data_parallel_master_ip h and port None"),
    ],
)
def test_init_that_names_no_place(rank: int, config: dict[str, Any], wrong: str) -> None:
    """A core that must meet the others and cannot says what INIT lacks."""
    engine = make_engine(executor=FakeExecutor(LOCKSTEP_MODEL))
    with pytest.raises(ValueError, match=wrong), joined_group(engine, make_init(data_parallel_size=2, **config), rank):
        pass
