"""The busy loop: between two steps it takes what the input thread has put in, and never waits while there is work."""

import logging
import time
from concurrent.futures import Future
from typing import Any

from core.data_parallel.load_report import LoadReport
from core.engine_interface import Engine
from core.intake import AddedRequest, InputQueue, LostFrontEnd, OutputQueue
from core.replies import finish_reply, refusal, utility_failure, utility_reply
from core.shutdown import Shutdown, ShutdownState
from core.wire.messages import EngineCoreOutputs, FinishReason, RequestType, UtilityCall

logger = logging.getLogger(__name__)

NOTHING_RAN_SLEEP_S = 0.001
"""Between two steps of which the first found nothing to run, though there are requests: lets the IO threads in."""


class EngineFailedError(Exception):
    """The core cannot go on: its executor or one of its threads is gone."""


class BusyLoop:
    """Owns the engine. Everything here runs on one thread; only the queues are shared.

    ``load_report``: what tells a coordinator of the requests here; None: there is no coordinator.
    """

    def __init__(
        self,
        engine: Engine,
        input_queue: InputQueue,
        output_queue: OutputQueue,
        shutdown: Shutdown,
        load_report: LoadReport | None = None,
    ) -> None:
        self._engine = engine
        self._input_queue = input_queue
        self._output_queue = output_queue
        self._shutdown = shutdown
        self._load_report = load_report
        self._unanswered: dict[int, UtilityCall] = {}
        self._is_deserted = False
        engine.on_progress(self._wake)

    def run(self) -> None:
        """Return when a shutdown is complete, or every front end is gone.

        Any exception is fatal; who waits for a call's answer is told first.
        """
        try:
            while self._handle_shutdown():
                self._process_input_queue()
                self._report_load()
                self._process_engine_step()
                self._report_load()
        except Exception:
            self._fail_calls("the engine died")
            raise
        except BaseException as panic:  # Native code raises such, and it must be told like any other death.
            self._fail_calls("the engine died")
            raise EngineFailedError(f"the engine panicked: {panic!r}") from panic

    def finish(self) -> None:
        """End what is left, once no more input can come: everything accepted gets its final output."""
        self._take_waiting_input()
        self._abort_all()
        self._fail_calls("Server shutting down")

    def _wake(self) -> None:
        """From any thread: look whether there is work now."""
        self._input_queue.put((RequestType.WAKEUP, None))

    def _handle_shutdown(self) -> bool:
        """Whether the loop goes on."""
        if not self._shutdown.requested:
            return not self._is_deserted
        if self._shutdown.state is ShutdownState.REQUESTED:
            self._shutdown.begin()
            num_requests = self._engine.num_unfinished_requests()
            logger.info("shutting down, %d requests, %g s to finish", num_requests, self._shutdown.timeout_s)
        if self._shutdown.overdue:
            self._abort_all()
        return self._goes_on()

    def _goes_on(self) -> bool:
        """Once a shutdown was requested."""
        return self._has_work()

    def _has_work(self) -> bool:
        """Whether to step instead of waiting for input."""
        return self._engine.has_requests()

    def _process_input_queue(self) -> None:
        while not self._has_work() and not self._is_ending:
            if self._input_queue.empty():
                self._forget_aborts()
                self._report_load()
            self._dispatch(*self._input_queue.get())
        self._take_waiting_input()

    @property
    def _is_ending(self) -> bool:
        return self._shutdown.requested or self._is_deserted

    def _take_waiting_input(self) -> None:
        # Counted first: a flood of input must not keep the next step from coming.
        for _ in range(self._input_queue.qsize()):
            self._dispatch(*self._input_queue.get())

    def _forget_aborts(self) -> None:
        """Without requests there is nothing to abort, and each abort is in the input queue too."""
        self._engine.aborts_queue.take()

    def _process_engine_step(self) -> None:
        if not self._step() and self._engine.has_requests():
            time.sleep(NOTHING_RAN_SLEEP_S)

    def _step(self) -> bool:
        """Whether the model ran."""
        outputs, has_run = self._engine.step()
        self._send(outputs)
        if not self._engine.has_requests() and self._input_queue.empty():  # there is time
            self._engine.check_integrity()
        return has_run

    def _report_load(self) -> None:
        if self._load_report is not None:
            self._load_report.send_if_changed()

    def _dispatch(self, request_type: RequestType, payload: Any) -> None:
        match request_type:
            case RequestType.ADD:
                self._add(payload)
            case RequestType.ABORT:
                self._engine.abort_requests(payload)
            case RequestType.UTILITY:
                self._call(payload)
            case RequestType.FRONT_END_LOST:
                self._lose_front_end(payload)
            case RequestType.EXECUTOR_FAILED:
                raise EngineFailedError(payload)

    def _add(self, added: AddedRequest) -> bool:
        """Whether the request was accepted; whoever sent it was told if not."""
        if self._shutdown.requested:
            self._reply(added.client_index, finish_reply(added.request_id, FinishReason.ABORT))
            return False
        try:
            self._engine.add_request(added.request)
        except Exception as error:
            if not isinstance(error, ValueError):
                extra = {"request_id": getattr(added.request, "name", added.request_id)}
                logger.exception("request %s could not be added", added.request_id, extra=extra)
            self._reply(added.client_index, refusal(added.request_id, error))
            return False
        return True

    def _call(self, call: UtilityCall) -> None:
        if self._shutdown.requested:
            self._reply(call.client_index, utility_failure(call.call_id, "Server shutting down"))
            return
        try:
            result = self._engine.call_utility(call.method, call.args)
        except Exception as error:
            self._reply(call.client_index, utility_failure(call.call_id, str(error)))
            return
        if isinstance(result, Future):
            self._unanswered[id(call)] = call
            result.add_done_callback(lambda future: self._reply_with(call, future))
        else:
            self._reply(call.client_index, utility_reply(call.call_id, result))

    def _reply_with(self, call: UtilityCall, future: "Future[Any]") -> None:
        """Answer ``call`` with a completed ``future``, unless it has failed already."""
        if self._unanswered.pop(id(call), None) is None:
            return
        error = future.exception()
        answer = utility_failure(call.call_id, str(error)) if error else utility_reply(call.call_id, future.result())
        self._reply(call.client_index, answer)

    def _fail_calls(self, reason: str) -> None:
        """Answer the calls whose result will not come any more, and those that nobody has looked at yet."""
        waiting = [self._input_queue.get() for _ in range(self._input_queue.qsize())]
        calls = [payload for kind, payload in waiting if kind is RequestType.UTILITY]
        for call in (*self._unanswered.values(), *calls):
            self._reply(call.client_index, utility_failure(call.call_id, reason))
        self._unanswered.clear()

    def _lose_front_end(self, lost: LostFrontEnd) -> None:
        """End its requests. Their last outputs are for it to find, should it come back."""
        level = logging.INFO if self._shutdown.requested else logging.WARNING  # Who is to end too may be quicker.
        logger.log(level, "front end %d is gone", lost.client_index)
        self._abort_all(lost.client_index)
        self._is_deserted |= lost.is_last

    def _abort_all(self, client_index: int | None = None) -> None:
        outputs = self._engine.abort_all(client_index)
        self._send(outputs)
        if num_aborted := sum(len(client_outputs.outputs) for client_outputs in outputs.values()):
            logger.info("aborted %d requests that were still running", num_aborted)

    def _send(self, outputs: dict[int, EngineCoreOutputs]) -> None:
        for client_index, client_outputs in outputs.items():
            client_outputs.timestamp = client_outputs.timestamp or time.monotonic()
            self._output_queue.put((client_index, client_outputs))

    def _reply(self, client_index: int, reply: EngineCoreOutputs) -> None:
        self._output_queue.put((client_index, reply))
