"""What GetModelInfo says of the model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from service.generation_config import GenerationConfig
from service.models import ModelFiles
from service.models.model_folder import read_config, read_json
from service.served_model import ServedModel

_RECOMMENDED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_MAX_TOKEN_ID = 2**31 - 1


@dataclass(frozen=True)
class ModelCard:
    """What the files of a model declare beyond what serving it takes. A token id is 0 where none is declared."""

    model_path: str
    tokenizer_folder: Path
    model_type: str
    architectures: tuple[str, ...]
    pad_token_id: int
    bos_token_id: int

    @classmethod
    def read(cls, files: ModelFiles) -> "ModelCard":
        """Raises ModelError for a file that is no JSON."""
        folder = files.tokenizer_folder
        config = read_json(folder / "config.json")
        # A multimodal model has its language model's tokens in a part of their own.
        ids = read_json(folder / "generation_config.json") | read_config(folder)
        architectures = config.get("architectures")
        return cls(
            model_path=str(files.path),
            tokenizer_folder=folder,
            model_type=str(config.get("model_type") or ""),
            architectures=tuple(map(str, architectures)) if isinstance(architectures, list) else (),
            pad_token_id=_token_id(ids, "pad_token_id"),
            bos_token_id=_token_id(ids, "bos_token_id"),
        )

    def info(self, model: ServedModel) -> pb.GetModelInfoResponse:
        """With the limits that ``model`` is served with."""
        return pb.GetModelInfoResponse(
            model_path=self.model_path,
            tokenizer_path=str(self.tokenizer_folder),
            model_type=self.model_type,
            architectures=self.architectures,
            pad_token_id=self.pad_token_id,
            bos_token_id=self.bos_token_id,
            is_generation=not model.embeds,
            max_context_length=model.max_model_len,
            max_req_input_len=model.max_model_len,
            vocab_size=model.vocab_size,
            supports_vision=False,
            served_model_name=model.name,
            eos_token_ids=model.generation_config.eos_token_ids,
            default_sampling_params_json=_recommended(model.generation_config),
        )


def _recommended(config: GenerationConfig) -> str:
    declared = {field: value for field, value in config.sampling.items() if field in _RECOMMENDED}
    return json.dumps(declared, separators=(",", ":")) if declared else ""


def _token_id(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if type(value) is int and 0 <= value <= _MAX_TOKEN_ID else 0
