"""The token counts of a request as trailing metadata, for proxies that bill or log without reading messages."""

from service.events import Event, Finished, Started

NUM_PROMPT_TOKENS = "sluicegate-num-prompt-tokens"
NUM_CACHED_TOKENS = "sluicegate-num-cached-tokens"
NUM_OUTPUT_TOKENS = "sluicegate-num-output-tokens"


class UsageTrailers:
    """Those of one request: the prompt once, the outputs of all sequences."""

    __slots__ = ("_num_cached_tokens", "_num_output_tokens", "_num_prompt_tokens")

    def __init__(self) -> None:
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_output_tokens = 0

    def note(self, event: Event) -> None:
        """Count what ``event`` says; deltas say nothing."""
        if isinstance(event, Started):
            self._num_prompt_tokens = event.num_prompt_tokens
            self._num_cached_tokens = event.num_cached_tokens
        elif isinstance(event, Finished):
            self._num_output_tokens += event.finish.num_output_tokens

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """To be sent when the last sequence has ended."""
        return (
            (NUM_PROMPT_TOKENS, str(self._num_prompt_tokens)),
            (NUM_CACHED_TOKENS, str(self._num_cached_tokens)),
            (NUM_OUTPUT_TOKENS, str(self._num_output_tokens)),
        )
