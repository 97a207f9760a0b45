"""A core that is real but for its model: ``python -m tests.core.fake_core --handshake-address ADDRESS``."""

import logging
import sys
from collections.abc import Callable

import click
import msgspec

from core.engine import EngineCore
from core.executor.fake import FAKE_MODEL, FakeExecutor
from core.process import ProcessConfig, run_engine_core
from core.process_options import process_options
from core.wire.messages import ParallelConfig
from tests.core.builders import make_engine

MODEL = msgspec.structs.replace(FAKE_MODEL, vocab_size=60_000)
"""So that the tokens of recorded requests are tokens here too."""
MAX_MODEL_LEN = 256


class TellingExecutor(FakeExecutor):
    """Says at its end what it still holds."""

    def shutdown(self) -> None:
        logging.info("the executor still knows %d requests", len(self.request_ids))
        super().shutdown()


def load(_parallel_config: ParallelConfig, _on_failure: Callable[[], None]) -> EngineCore:
    return make_engine(
        num_blocks=300,
        max_num_seqs=32,
        max_num_batched_tokens=1024,
        max_model_len=MAX_MODEL_LEN,
        async_scheduling=True,
        executor=TellingExecutor(MODEL),
    )


@click.command()
@process_options
def main(process: ProcessConfig) -> None:
    sys.exit(run_engine_core(process, load))


if __name__ == "__main__":
    main()
