"""A small BERT with random weights, in a folder as sentence-transformers writes it, and a tokenizer of whole words."""

import json
from pathlib import Path

import tokenizers
import torch
from transformers import BertConfig, BertModel

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "how", "do", "i", "bake", "bread", "##s", "?")
SIZE = 16
MAX_TOKENS = 12


def write_tiny_encoder(folder: Path, mode: str = "mean_tokens", is_normalized: bool = True) -> BertModel:
    """The model whose files are now in ``folder``, for comparison."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=SIZE,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
        initializer_range=0.5,
    )
    model = BertModel(config).eval()
    model.save_pretrained(folder)
    _write_tokenizer(folder)
    steps = ["Transformer", "Pooling", *(["Normalize"] if is_normalized else [])]
    paths = ("", "1_Pooling", "2_Normalize")
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{step}"}
        for index, (step, path) in enumerate(zip(steps, paths, strict=False))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": SIZE, "pooling_mode_cls_token": False, f"pooling_mode_{mode}": True})
    )
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": MAX_TOKENS}))
    return model


def _write_tokenizer(folder: Path) -> None:
    """With the padding and the truncation that real ones bring along."""
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.add_special_tokens(list(WORDS[:4]))
    tokenizer.enable_padding(length=8)
    tokenizer.enable_truncation(6)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"cls_token": "[CLS]", "sep_token": "[SEP]"}))
