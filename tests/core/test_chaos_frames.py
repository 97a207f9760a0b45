"""Whatever comes to the input socket of a core process, the next good request is answered."""

import random
from pathlib import Path

import numpy as np
import psutil
import zmq
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from core.executor.fake import fake_next_token
from core.wire.messages import EngineCoreOutput, FinishReason, RequestType
from core.wire.tensor import Tensor
from core.wire.tensor_ipc import TensorSender, tensor_channel
from tests.core.bad_messages import BadMessage, bad_messages, call_id_of, request_id_of
from tests.core.fake_core import MODEL
from tests.core.front_end import CoreProcess, FrontEnd, make_request
from tests.core.wire.recorded import recording

NUM_BATCHES = 110
BATCH_SIZE = 50
NUM_MESSAGES = 20_000
"""Sent at the least: most of a batch are sent in four variants."""
NUM_SETTLING = 5000
"""Messages after which a core has grown to its size: its buffers, its prefix cache, the allocator's arenas."""
MAX_GROWTH_BYTES = 8 << 20
"""Of the 15,000 messages that follow, each with a good request: 500 bytes that stayed of each would show."""
LAST_CALL_ID = 1
GOOD_PROMPT = [1, 2, 3, 4, 5]
SETTINGS = settings(max_examples=NUM_BATCHES, derandomize=True, database=None, phases=[Phase.generate])


class Attack:
    """Bad messages with a good request behind each, and the count of what comes back for whom."""

    def __init__(self, front_end: FrontEnd) -> None:
        self._front_end = front_end
        self._num_ends: dict[str | int, int] = {}
        """Of each request and call that somebody waits for."""
        self.num_sent = 0

    @property
    def numbers_of_ends(self) -> set[int]:
        """How often a request or a call has ended."""
        return set(self._num_ends.values())

    def run(self, batch: list[BadMessage], draw: random.Random) -> None:
        """Send the variants of ``batch``, and return when everybody who can be answered was."""
        waiting: dict[str | int, BadMessage] = {}
        for message in (variant for bad in batch for variant in bad.variants(draw)):
            numbered = message.numbered(self.num_sent)
            waiting |= dict.fromkeys(self._send(numbered), numbered)
            self.num_sent += 1
        self._receive_until_ended(waiting)

    def finish(self) -> None:
        """Receive what else may be under way."""
        self._front_end.call(LAST_CALL_ID, "get_supported_tasks")
        self._receive_until_ended({LAST_CALL_ID: BadMessage([], True)})

    def _send(self, message: BadMessage) -> list[str | int]:
        """``message`` and a good request; who is to be answered."""
        self._front_end.send(*message.frames)
        self._front_end.add(good_id := f"good-{self.num_sent}", max_tokens=1)
        if not message.is_answerable:
            return [good_id]
        is_add = message.frames[0] == RequestType.ADD.value
        return [good_id, request_id_of(self.num_sent) if is_add else call_id_of(self.num_sent)]

    def _receive_until_ended(self, waiting: dict[str | int, BadMessage]) -> None:
        self._num_ends |= dict.fromkeys(waiting, 0)
        while unanswered := [name for name in waiting if not self._num_ends[name]]:
            try:
                message = self._front_end.receive()
            except zmq.Again:
                raise AssertionError(f"no answer: {[(name, waiting[name]) for name in unanswered[:3]]}") from None
            for output in message.outputs:
                self._take(output)
            if message.utility_output is not None:
                self._count(message.utility_output.call_id)

    def _take(self, output: EngineCoreOutput) -> None:
        if output.finished:
            self._count(output.request_id)
        if output.request_id.startswith("good-"):
            assert output.finish_reason is FinishReason.LENGTH
            assert output.new_token_ids == [fake_next_token(GOOD_PROMPT, MODEL.vocab_size)]

    def _count(self, name: str | int) -> None:
        if name in self._num_ends:
            self._num_ends[name] += 1


class Usage:
    """What a core process holds: bytes of memory, descriptors and threads."""

    def __init__(self, core: CoreProcess) -> None:
        process = psutil.Process(core.process.pid)
        self.num_bytes = process.memory_info().rss
        self.num_handles = process.num_fds(), process.num_threads()


def greet_with_a_tensor(front_end: FrontEnd) -> None:
    """So that the core knows the wire's version and the sender of tensors, as of any front end that has been served."""
    front_end.send(RequestType.ADD.value, *recording("py_add_chat_stream").frames)
    request = make_request("embeds", max_tokens=1)
    request.prompt_token_ids = None
    request.prompt_embeds = Tensor(np.ones((64, 4), np.float32))
    front_end.send_request(request)
    front_end.receive_until_finished("embeds")


def test_a_core_answers_whatever_came_before(tmp_path: Path) -> None:
    """20,000 bad messages, a good request behind each: every good one gets its token, every bad one that can be
    answered is, and nobody twice; the core does not grow, holds nothing in the end, and ends well.
    """
    sender_end, receiver_end = tensor_channel()
    descriptor = receiver_end.fileno()
    arguments = "--tensor-ipc-fd", str(descriptor)
    with (
        FrontEnd(tmp_path, tensors=TensorSender(sender_end, threshold_bytes=1000)) as front_end,
        CoreProcess(front_end.address, *arguments, module="tests.core.fake_core", pass_fds=(descriptor,)) as core,
    ):
        front_end.accept()
        greet_with_a_tensor(front_end)
        attack = Attack(front_end)
        settled: list[Usage] = []

        @SETTINGS
        @given(st.lists(bad_messages, min_size=BATCH_SIZE, max_size=BATCH_SIZE), st.integers(0, 2**32))
        def survives(batch: list[BadMessage], seed: int) -> None:
            attack.run(batch, random.Random(seed))
            if attack.num_sent >= NUM_SETTLING and not settled:
                settled.append(Usage(core))

        survives()
        attack.finish()
        assert attack.num_sent >= NUM_MESSAGES
        assert attack.numbers_of_ends == {1}
        in_the_end = Usage(core)
        assert in_the_end.num_bytes - settled[0].num_bytes < MAX_GROWTH_BYTES
        assert in_the_end.num_handles == settled[0].num_handles
        core.terminate()
        assert core.wait() == 0
        assert "shutting down, 0 requests" in core.log
        assert "the executor still knows 0 requests" in core.log
        assert "Traceback" not in core.log
