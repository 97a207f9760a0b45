"""A GGUF of the Llama architecture as a CTranslate2 model in int8: ``convert_ctranslate2 MODEL.gguf FOLDER``.

The weights are dequantized, and quantized anew as CTranslate2 does: 8 bits, one scale for each row.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.converters import utils
from ctranslate2.specs import common_spec, transformer_spec
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray


def convert(gguf: Path, folder: Path) -> None:
    reader = GGUFReader(gguf)
    weights = {tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float32) for tensor in reader.tensors}

    def setting(name: str) -> Any:
        return reader.fields[f"llama.{name}"].contents()

    num_heads, num_heads_kv = setting("attention.head_count"), setting("attention.head_count_kv")
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        setting("block_count"),
        num_heads,
        activation=common_spec.Activation.SWISH,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        # GGUF stores the rows of queries and keys in this order.
        rotary_interleave=True,
        rotary_base=setting("rope.freq_base"),
        num_heads_kv=num_heads_kv if num_heads_kv != num_heads else None,
    )
    spec.decoder.scale_embeddings = False
    spec.decoder.embeddings.weight = weights["token_embd.weight"]
    spec.decoder.projection.weight = weights.get("output.weight", weights["token_embd.weight"])
    spec.decoder.layer_norm.gamma = weights["output_norm.weight"]
    for number, layer in enumerate(spec.decoder.layer):
        _set_layer(layer, {name.removeprefix(f"blk.{number}."): weights[name] for name in weights})
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    spec.register_vocabulary(tokens)
    spec.config.bos_token = tokens[reader.fields["tokenizer.ggml.bos_token_id"].contents()]
    spec.config.eos_token = tokens[reader.fields["tokenizer.ggml.eos_token_id"].contents()]
    spec.config.unk_token = tokens[0]
    spec.config.layer_norm_epsilon = setting("attention.layer_norm_rms_epsilon")
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    (folder / "vocabulary.json").write_text(json.dumps(tokens))


def _set_layer(layer: Any, weights: dict[str, NDArray[np.float32]]) -> None:
    layer.self_attention.layer_norm.gamma = weights["attn_norm.weight"]
    layer.ffn.layer_norm.gamma = weights["ffn_norm.weight"]
    parts = [common_spec.LinearSpec() for _ in range(3)]
    for part, name in zip(parts, ("attn_q", "attn_k", "attn_v"), strict=True):
        part.weight = weights[f"{name}.weight"]
    utils.fuse_linear(layer.self_attention.linear[0], parts)
    layer.self_attention.linear[1].weight = weights["attn_output.weight"]
    layer.ffn.linear_0.weight = weights["ffn_gate.weight"]
    layer.ffn.linear_0_noact.weight = weights["ffn_up.weight"]
    layer.ffn.linear_1.weight = weights["ffn_down.weight"]


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
