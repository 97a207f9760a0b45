"""What is kept of a call's requests while they live: all that another core needs to go on with them."""

from collections.abc import Iterator, Sequence

from core.wire.messages import EngineCoreOutput, EngineCoreRequest, EngineReadyResponse
from service.cores.resume import resumed_request
from service.output_stream import OutputStream


class LiveRequest:
    """One request: what was asked for, and the tokens that came since.

    ``core_id`` is its name in the core, another one in every core that has it: whatever an earlier core still says of
    it is said of nobody.
    """

    __slots__ = ("call", "core_id", "is_resumed", "num_tokens_before", "request", "token_ids")

    def __init__(self, call: "LiveCall", request: EngineCoreRequest) -> None:
        self.call = call
        self.request = request
        self.core_id = request.request_id
        self.is_resumed = False
        """The core that has it is not the first."""
        self.token_ids: list[int] = []
        self.num_tokens_before = 0
        """Those that came from earlier cores."""

    def disguise(self, output: EngineCoreOutput) -> None:
        """Make an output of a later core one of the first: under the name that it has here, its start told once."""
        output.request_id = self.request.request_id
        if self.num_tokens_before:
            output.events = output.prefill_stats = output.new_prompt_logprobs_tensors = None


class LiveCall:
    """Requests of one prompt that were added together. They are at one core together, or wait for one together.

    ``may_differ``: its client takes other tokens than it would have had rather than none.
    """

    __slots__ = ("_origin", "may_differ", "name", "num_strikes", "num_submissions", "requests", "stream")

    def __init__(
        self, stream: OutputStream, requests: Sequence[EngineCoreRequest], *, may_differ: bool = False
    ) -> None:
        self.stream = stream
        self.requests = [LiveRequest(self, request) for request in requests]
        self.name = requests[0].external_req_id or requests[0].request_id
        """For log lines: the client's own, if it is known."""
        self.may_differ = may_differ
        self.num_submissions = 0
        self.num_strikes = 0
        """Cores in a row that ended while they had it, and had given it nothing."""
        self._origin: EngineReadyResponse | None = None

    def __repr__(self) -> str:
        unfinished = len(self.stream.unfinished)
        return f"LiveCall({self.name!r}, {unfinished} unfinished, {self.num_submissions} submissions)"

    @property
    def unfinished(self) -> list[LiveRequest]:
        return [live for live in self.requests if live.request.request_id in self.stream.unfinished]

    @property
    def has_progressed(self) -> bool:
        """Whether the core that has it has given it something, or it has ended."""
        return any(len(live.token_ids) > live.num_tokens_before for live in self.requests) or not self.stream.unfinished

    @property
    def num_tokens(self) -> int:
        """Of its longest unfinished request: prompt and output."""
        return max((live.request.num_prompt_tokens + len(live.token_ids) for live in self.unfinished), default=0)

    def forget(self) -> None:
        """It has ended. Its requests, which know it, would be kept until circles are looked for: hardly ever."""
        self.requests.clear()

    def submissions(self, core: EngineReadyResponse) -> Iterator[tuple[LiveRequest, EngineCoreRequest]]:
        """What ``core`` is to be sent, each with its new name. Raises NotResumableError before the first."""
        origin, self._origin = self._origin or core, core
        number, self.num_submissions = self.num_submissions, self.num_submissions + 1
        messages = []
        for live in self.unfinished:
            core_id = f"{live.request.request_id}~{number}" if number else live.request.request_id
            message = live.request
            if number:
                message = resumed_request(
                    live.request, live.token_ids, core_id, origin, core, may_differ=self.may_differ
                )
            messages.append((live, message))
        for live, message in messages:
            live.is_resumed, live.num_tokens_before = number > 0, len(live.token_ids)
            yield live, message
