"""What a model's authors recommend: generation_config.json."""

import logging
from dataclasses import dataclass
from pathlib import Path

import msgspec

from core.wire.sampling_params import SamplingParams, find_violations
from service.models.model_folder import read_config, read_json

_log = logging.getLogger(__name__)
_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
_OTHER_NAMES = {"max_tokens": "max_new_tokens"}
"""In the file."""


@dataclass(frozen=True)
class GenerationConfig:
    """Defaults for sampling, None where the model declares none, and the tokens that end a sequence."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    """The first is the tokenizer's; the others end a sequence as well."""

    @classmethod
    def load(cls, folder: Path, vocab_size: int, eos_token_id: int | None) -> "GenerationConfig":
        """Reads generation_config.json, else config.json for the end of a sequence.

        Declared values out of bounds are left out with a warning: no request should fail for a field it did not set.
        Raises ModelError for a file that is no JSON.
        """
        declared = read_json(folder / "generation_config.json")
        named = {field: declared.get(_OTHER_NAMES.get(field, field)) for field in _FIELDS}
        sampling = {field: value for field, value in named.items() if _is_usable(field, value)}
        ends = declared.get("eos_token_id", read_config(folder).get("eos_token_id"))
        eos_token_ids = [eos_token_id, *(ends if isinstance(ends, list) else [ends])]
        return cls(**sampling, eos_token_ids=tuple(dict.fromkeys(i for i in eos_token_ids if _is_in(i, vocab_size))))

    @property
    def sampling(self) -> dict[str, float]:
        """What the model declares, by the name of the field."""
        return {field: value for field in _FIELDS if (value := getattr(self, field)) is not None}


def _is_usable(field: str, value: object) -> bool:
    if value is None:
        return False
    try:
        usable = not any(find_violations(msgspec.convert({field: value}, SamplingParams), vocab_size=1))
    except msgspec.ValidationError:
        usable = False
    if not usable:
        _log.warning("generation_config.json: %s %r is out of bounds and ignored", field, value)
    return usable


def _is_in(token_id: object, vocab_size: int) -> bool:
    return type(token_id) is int and 0 <= token_id < vocab_size
