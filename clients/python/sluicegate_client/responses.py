"""Answer messages in, plain Python values out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from sluicegate.v1 import inference_service_pb2 as pb


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"
    """The end-of-sequence token, a stop token or a stop string."""
    LENGTH = "length"
    """``max_tokens``, or the end of the model's context."""
    ABORT = "abort"
    """Aborted by the operator or by a shutdown; what was generated is kept."""
    ERROR = "error"
    """An internal error of this sequence alone; with one sequence, or when all fail, the call raises instead."""
    REPETITION = "repetition"
    """The engine found the sequence repeating itself."""
    OTHER = "other"
    """A reason that only a newer client knows."""

    @classmethod
    def from_proto(cls, reason: pb.FinishReason.ValueType) -> Self:
        if reason == pb.FINISH_REASON_UNSPECIFIED or reason not in pb.FinishReason.values():
            return cls("other")
        return cls[pb.FinishReason.Name(reason).removeprefix("FINISH_REASON_")]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts; ``num_cached_tokens`` of the prompt's tokens came from the prefix cache."""

    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int

    @classmethod
    def from_proto(cls, usage: pb.Usage) -> Self:
        return cls(usage.num_prompt_tokens, usage.num_cached_tokens, usage.num_output_tokens)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one position: of its token, and ``{token_id: logprob}``.

    ``top`` has the most likely tokens, those that were named, or all.
    """

    token_id: int
    logprob: float
    rank: int
    top: dict[int, float]

    @classmethod
    def from_proto(cls, position: pb.TokenLogprobs) -> Self:
        return cls(
            position.token_id,
            position.logprob,
            position.rank,
            dict(enumerate(position.all)) or {each.token_id: each.logprob for each in position.top},
        )


@dataclass(frozen=True, slots=True)
class Output:
    """One generated sequence. ``stop`` is the stop token or stop string that ended it; None for any other end."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs]
    finish_reason: FinishReason
    stop: int | str | None

    @classmethod
    def from_proto(cls, output: pb.SequenceOutput) -> Self:
        return cls(
            output.index,
            output.text,
            list(output.token_ids),
            [TokenLogprobs.from_proto(position) for position in output.logprobs],
            FinishReason.from_proto(output.finish_reason),
            _stop(output),
        )


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer to ``generate``: ``n`` outputs. The properties show the first."""

    request_id: str
    outputs: list[Output]
    usage: Usage
    """The prompt once, the outputs of all sequences."""
    prompt_token_ids: list[int]
    prompt_logprobs: list[TokenLogprobs]

    @classmethod
    def from_proto(cls, response: pb.GenerateResponse) -> Self:
        return cls(
            response.request_id,
            [Output.from_proto(output) for output in response.outputs],
            Usage.from_proto(response.usage),
            list(response.prompt_token_ids),
            [TokenLogprobs.from_proto(position) for position in response.prompt_logprobs],
        )

    @property
    def text(self) -> str:
        return self.outputs[0].text

    @property
    def token_ids(self) -> list[int]:
        return self.outputs[0].token_ids

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        return self.outputs[0].logprobs

    @property
    def finish_reason(self) -> FinishReason:
        return self.outputs[0].finish_reason


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt has been computed."""

    num_prompt_tokens: int
    num_cached_tokens: int
    prompt_token_ids: list[int]
    prompt_logprobs: list[TokenLogprobs]

    @classmethod
    def from_proto(cls, started: pb.Started) -> Self:
        return cls(
            started.num_prompt_tokens,
            started.num_cached_tokens,
            list(started.prompt_token_ids),
            [TokenLogprobs.from_proto(position) for position in started.prompt_logprobs],
        )


@dataclass(frozen=True, slots=True)
class Delta:
    """More of the sequence ``index``."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs]

    @classmethod
    def from_proto(cls, delta: pb.Delta) -> Self:
        return cls(
            delta.index,
            delta.text,
            list(delta.token_ids),
            [TokenLogprobs.from_proto(position) for position in delta.logprobs],
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """A sequence ended. ``stop`` is the stop token or stop string that ended it; None for any other end."""

    index: int
    finish_reason: FinishReason
    stop: int | str | None
    usage: Usage

    @classmethod
    def from_proto(cls, finished: pb.Finished) -> Self:
        return cls(
            finished.index,
            FinishReason.from_proto(finished.finish_reason),
            _stop(finished),
            Usage.from_proto(finished.usage),
        )


def _stop(ended: pb.SequenceOutput | pb.Finished) -> int | str | None:
    match ended.WhichOneof("stop"):
        case "stop_token_id":
            return ended.stop_token_id
        case "stop_string":
            return ended.stop_string
    return None
