"""The engine's part in structured output: a constraint for each request that asks, a mask for each step."""

from collections.abc import Callable, Sequence
from pathlib import Path

from core.executor.interface import GrammarBitmask
from core.request import Request
from core.structured_output.compiler import GrammarCompiler
from core.structured_output.constraint import Constraint
from core.structured_output.form import FIELD, Form
from core.structured_output.masks import MaskThreads
from core.wire.sampling_params import StructuredOutputs


class Grammars:
    """Owned by the busy loop. Costs nothing until the first request asks: the vocabulary is read then.

    ``on_done``: called from any thread when a request that waited for its grammar need not wait any more.
    """

    def __init__(self, tokenizer_folder: Path, vocab_size: int) -> None:
        self._num_words = -(-vocab_size // 32)
        self.masks = MaskThreads()
        self._compiler = GrammarCompiler(tokenizer_folder, vocab_size, lambda: self.on_done())
        self.on_done: Callable[[], None] = lambda: None

    def preload(self) -> None:
        """Read the vocabulary now, while nobody is held up by it. Raises ValueError if there is none."""
        self._compiler.preload()

    def constrain(self, request: Request, asked: StructuredOutputs) -> Constraint:
        """What ``request`` is to wait for, and then to follow."""
        form = Form.of(asked)
        ends = request.stop_token_ids
        if request.eos_token_id is not None:
            ends |= {request.eos_token_id}
        return Constraint(f"{FIELD}.{form.kind}", self._compiler.compile(form), ends, self.masks, self._num_words)

    def wait_for_masks(self) -> None:
        """Before a step is made: those that are not there in a moment are left to a later one."""
        self.masks.wait()

    def mask(self, requests: Sequence[Request]) -> GrammarBitmask:
        """For a step that gives each of ``requests``, whose constraints are ready, a token."""
        bits = b"".join([request.constraint.mask.tobytes() for request in requests if request.constraint is not None])
        return GrammarBitmask([request.request_id for request in requests], bits)

    def close(self) -> None:
        self._compiler.close()
        self.masks.close()
