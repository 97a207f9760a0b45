"""A core with a fake model of the kind that needs lockstep. Its tokens are those of tests/service/byte_model.py."""

import sys
from collections.abc import Callable

import click
import msgspec

from core.engine import EngineCore
from core.executor.fake import FakeExecutor
from core.process import ProcessConfig, run_engine_core
from core.process_options import process_options
from core.wire.messages import ParallelConfig
from tests.core.builders import make_engine
from tests.core.data_parallel.ranks import LOCKSTEP_MODEL

MODEL = msgspec.structs.replace(LOCKSTEP_MODEL, vocab_size=257)


def load(_parallel_config: ParallelConfig, _on_failure: Callable[[], None]) -> EngineCore:
    return make_engine(executor=FakeExecutor(MODEL))


@click.command()
@process_options
def main(process: ProcessConfig) -> None:
    sys.exit(run_engine_core(process, load))


if __name__ == "__main__":
    main()
