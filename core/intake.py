"""What the input thread makes of a message: work for the busy loop, or an answer that says what is wrong with it.

    type byte   payload
    ADD ──────▶ decode ─▶ preprocess ─▶ input_queue          not possible: finish ERROR ─▶ output_queue
    ABORT ────▶ decode ─▶ aborts_queue and input_queue
    UTILITY ──▶ decode ─▶ input_queue                         not possible: failure ─────▶ output_queue
    START_DP_WAVE, of the coordinator ──▶ decode ─▶ input_queue
    anything else, or nobody left to answer: counted, and logged now and then

An abort takes both queues: the first lets a running step act on it, the second keeps it behind an ADD still waiting.
"""

import logging
import queue
from typing import Any, NamedTuple

from core.engine_interface import Engine
from core.front_ends import FrontEnds
from core.logs import ThrottledLog
from core.replies import refusal, utility_failure
from core.wire.codec import Decoder, WireError
from core.wire.messages import EngineCoreOutputs, EngineCoreRequest, RequestType, UtilityCall, without_words
from core.wire.salvage import salvage_call, salvage_request
from core.wire.tensor_ipc import TensorReceiver
from core.wire.waves import COORDINATOR_READY, StartWave

logger = logging.getLogger(__name__)

InputQueue = queue.SimpleQueue[tuple[RequestType, Any]]
OutputQueue = queue.SimpleQueue[tuple[int, EngineCoreOutputs] | bytes | None]
"""(client index, outputs); ENGINE_CORE_DEAD, which is the last thing sent; None: stop."""


class AddedRequest(NamedTuple):
    """Payload of an ADD in the input queue: the engine's own request, and whom to tell if it cannot be added."""

    request_id: str
    client_index: int
    request: Any
    wave: int = 0
    """The data-parallel wave that its front end knew of."""


class LostFrontEnd(NamedTuple):
    """Payload of a FRONT_END_LOST: who is gone, and whether nobody else is left."""

    client_index: int
    is_last: bool


class Intake:
    """``take`` never raises: a message can end one request, never the thread."""

    def __init__(
        self,
        engine: Engine,
        input_queue: InputQueue,
        output_queue: OutputQueue,
        front_ends: FrontEnds,
        tensors: TensorReceiver | None = None,
    ) -> None:
        self._engine = engine
        self._input_queue = input_queue
        self._output_queue = output_queue
        self._front_ends = front_ends
        self._request_decoder = Decoder(EngineCoreRequest, "ADD", tensors)
        self._abort_decoder = Decoder(list[str], "ABORT")
        self._call_decoder = Decoder(UtilityCall, "UTILITY")
        self._wave_decoder = Decoder(StartWave, "START_DP_WAVE")
        self._refused = ThrottledLog(logger)
        self._dropped = ThrottledLog(logger)

    @property
    def num_dropped(self) -> int:
        """Messages that nobody could be told about."""
        return self._dropped.count

    def take(self, from_client: int, frames: list[bytes]) -> None:
        """Take one message, as it arrived on the input socket of ``from_client``."""
        try:
            self._dispatch(from_client, frames)
        except WireError as error:
            self._dropped.warning("dropped a message of client %d: %s", from_client, error)
        except Exception:
            logger.exception("a message of client %d could not be taken", from_client)

    def take_from_coordinator(self, frames: list[bytes]) -> None:
        """Take one message of the data-parallel coordinator."""
        if frames == [COORDINATOR_READY]:  # For an engine that has come later.
            return
        try:
            if frames[0] != RequestType.START_DP_WAVE.value:
                raise WireError(f"no such type of message: {frames[0][:8].hex()}")
            self._input_queue.put((RequestType.START_DP_WAVE, self._wave_decoder.decode(frames[1:])))
        except WireError as error:
            self._dropped.warning("dropped a message of the coordinator: %s", error)

    def _dispatch(self, from_client: int, frames: list[bytes]) -> None:
        if len(frames) < 2:
            raise WireError(f"a message has a type and a payload, got {len(frames)} frame(s)")
        match frames[0]:
            case RequestType.ADD.value:
                self._take_request(from_client, frames[1:])
            case RequestType.ABORT.value:
                self._take_abort(frames[1:])
            case RequestType.UTILITY.value:
                self._take_call(from_client, frames[1:])
            case other:
                raise WireError(f"no such type of message: {other[:8].hex()}")

    def _take_request(self, from_client: int, frames: list[bytes]) -> None:
        try:
            message = self._request_decoder.decode(frames)
        except Exception as error:  # Memory or descriptors may be short, which is no reason to leave it unanswered.
            request_id, client_index = salvage_request(frames[0])
            if request_id is None:
                raise
            self._refuse(request_id, self._answerable(client_index, from_client), error)
        else:
            client_index = self._answerable(message.client_index, from_client)
            self._front_ends.hear_request(client_index, frames[0])
            self._preprocess(message, client_index)

    def _preprocess(self, message: EngineCoreRequest, client_index: int) -> None:
        message.client_index = client_index
        try:
            request = self._engine.preprocess_add_request(message)
        except Exception as error:
            self._refuse(message.request_id, client_index, error, message.external_req_id)
        else:
            added = AddedRequest(message.request_id, client_index, request, message.current_wave)
            self._input_queue.put((RequestType.ADD, added))

    def _refuse(self, request_id: str, client_index: int, error: Exception, name: str | None = None) -> None:
        """``name``: what the front end's log calls it, if that is known."""
        if isinstance(error, ValueError | WireError):
            cause = without_words(str(error))
            self._refused.warning("refused request %.100s: %s", request_id, cause, request_id=name or request_id)
        else:
            extra = {"request_id": name or request_id}
            logger.error("request %.100s could not be taken", request_id, exc_info=error, extra=extra)
        self._output_queue.put((client_index, refusal(request_id, error)))

    def _take_abort(self, frames: list[bytes]) -> None:
        request_ids = self._abort_decoder.decode(frames)
        self._engine.aborts_queue.put(request_ids)
        self._input_queue.put((RequestType.ABORT, request_ids))

    def _take_call(self, from_client: int, frames: list[bytes]) -> None:
        try:
            call = self._call_decoder.decode(frames)
        except Exception as error:
            call_id, client_index = salvage_call(frames[0])
            if call_id is None:
                raise
            failure = utility_failure(call_id, str(error))
            self._output_queue.put((self._answerable(client_index, from_client), failure))
        else:
            call.client_index = self._answerable(call.client_index, from_client)
            self._input_queue.put((RequestType.UTILITY, call))

    def _answerable(self, client_index: int | None, from_client: int) -> int:
        """``client_index`` if there is such an output socket, else that of the client the message came from."""
        if client_index is None or not 0 <= client_index < len(self._front_ends):
            return from_client
        return client_index
