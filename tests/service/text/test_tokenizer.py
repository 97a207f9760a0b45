"""service.text.tokenizer: SmolLM2's ids are the reference's, and there is one BOS."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, processors

from service.models import ModelError
from service.served_model import ServedModel
from service.text.chat_template import ChatTemplateError
from service.text.token_bytes import UnknownTokenError
from service.text.tokenizer import Tokenizer

_REFERENCE = Path(__file__).parents[2] / "data" / "reference" / "smollm2_135m_q4_1.json"
_CASES = json.loads(_REFERENCE.read_text(encoding="utf-8"))["cases"]
_CHATS = [case for case in _CASES if "messages" in case]


def _chat(tokenizer: Tokenizer, messages: list[dict[str, str]], **options: Any) -> list[int]:
    return tokenizer.encode_chat(tokenizer.render_chat(messages, **options))


def _by_name(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


@_by_name(_CASES)
def test_prompts_have_the_reference_s_tokens(tokenizer: Tokenizer, case: dict[str, Any]) -> None:
    """Every prompt of the reference, and the text of every answer."""
    assert tokenizer.encode(case["prompt_text"]) == case["prompt_token_ids"]
    assert tokenizer.decode(case["greedy_token_ids"]) == case["greedy_text"]


@_by_name(_CHATS)
def test_chats_have_the_reference_s_tokens(tokenizer: Tokenizer, case: dict[str, Any]) -> None:
    """Template and tokenizer together."""
    assert _chat(tokenizer, case["messages"]) == case["prompt_token_ids"]


def test_generation_prompt_can_be_left_out(tokenizer: Tokenizer) -> None:
    """The conversation alone is the beginning of the one with the assistant's opening."""
    messages = [{"role": "user", "content": "hi"}]
    assert (
        tokenizer.decode(_chat(tokenizer, messages), False).removeprefix(
            tokenizer.decode(_chat(tokenizer, messages, add_generation_prompt=False), False)
        )
        == "<|im_start|>assistant\n"
    )


def test_special_tokens_are_shown_on_demand(tokenizer: Tokenizer) -> None:
    """Skipped or spelled out."""
    assert tokenizer.decode([1, 19556, 2]) == "Hello"
    assert tokenizer.decode([1, 19556, 2], skip_special_tokens=False) == "<|im_start|>Hello<|im_end|>"


def test_tokens_are_spelled_as_the_vocabulary_does(tokenizer: Tokenizer) -> None:
    """token_text is not the text; an id without a token has none."""
    assert [tokenizer.token_text(token_id) for token_id in (504, 3575, 2, 10**9)] == [
        "The",
        "Ġcapital",
        "<|im_end|>",
        "",
    ]


def test_ids_outside_the_vocabulary_have_no_text(tokenizer: Tokenizer) -> None:
    """A typed error that names id and bound."""
    with pytest.raises(UnknownTokenError, match="49152 is outside the vocabulary of 49152"):
        tokenizer.decode([5, 49_152])


def _write_model(folder: Path, template: object = None, **config: object) -> Path:
    """A model that wants a BOS, with a SentencePiece-like tokenizer of single letters."""
    vocabulary = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", "▁", *"abcdefghij"])}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(parts)
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.save(str(folder / "tokenizer.json"))
    config |= {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


_PLAIN_TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def test_exactly_one_bos(tmp_path: Path) -> None:
    """Added to plain text, not doubled where the text or the template brings it, added where the template forgot it."""
    plain = Tokenizer.load(_write_model(tmp_path, _PLAIN_TEMPLATE))
    for token_ids in (plain.encode("abc"), plain.encode("<s>abc"), _chat(plain, [{"content": "abc"}])):
        assert token_ids[0] == 1
        assert 1 not in token_ids[1:]
    assert _chat(plain, [{"content": "<s>abc"}]).count(1) == 1
    assert _chat(Tokenizer.load(_write_model(tmp_path, "{{ bos_token }}abc")), []).count(1) == 1


def test_special_tokens_can_be_left_out(tmp_path: Path) -> None:
    """add_special_tokens=False adds no BOS, and keeps what the text has."""
    plain = Tokenizer.load(_write_model(tmp_path))
    assert plain.encode("abc", add_special_tokens=False) == [3, 4, 5, 6]
    assert plain.encode("<s><s>a", add_special_tokens=False).count(1) == 2


def test_space_before_a_whole_text_is_taken_away(tmp_path: Path) -> None:
    """SentencePiece's own leading space; a second one is the text's."""
    plain = Tokenizer.load(_write_model(tmp_path))
    assert plain.decode(plain.encode("ab c")) == "ab c"
    assert plain.decode(plain.encode(" ab")) == " ab"
    assert plain.decode([]) == ""


def test_template_file_goes_before_the_one_in_the_configuration(tmp_path: Path) -> None:
    """chat_template.jinja is where newer models have it."""
    _write_model(tmp_path, "wrong")
    (tmp_path / "chat_template.jinja").write_text("<s>a")
    assert _chat(Tokenizer.load(tmp_path), []) == [1, 3, 4]


def test_default_template_of_several_is_taken(tmp_path: Path) -> None:
    """A list of named templates: "default" is for plain conversations."""
    templates = [{"name": "tool_use", "template": "b"}, {"name": "default", "template": "<s>a"}]
    assert _chat(Tokenizer.load(_write_model(tmp_path, templates)), []) == [1, 3, 4]


@pytest.mark.parametrize("template", [None, [{"name": "tool_use", "template": "b"}]])
def test_model_without_a_template_says_so(tmp_path: Path, template: object) -> None:
    """It cannot chat."""
    with pytest.raises(ChatTemplateError, match="no chat template"):
        Tokenizer.load(_write_model(tmp_path, template)).render_chat([])


def test_larger_embedding_makes_a_larger_vocabulary(tmp_path: Path) -> None:
    """Ids that only pad the embedding are in the vocabulary and have no text."""
    (tmp_path / "config.json").write_text('{"text_config": {"vocab_size": 64}}')
    padded = Tokenizer.load(_write_model(tmp_path))
    assert padded.vocab_size == 64
    assert padded.decode([4, 63]) == "a"


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_broken_file_is_named(tmp_path: Path, file: str) -> None:
    """One typed error, with the path."""
    (_write_model(tmp_path) / file).write_text("{")
    with pytest.raises(ModelError, match=file):
        Tokenizer.load(tmp_path)


def test_missing_tokenizer_is_named(tmp_path: Path) -> None:
    """An empty folder."""
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_others_run_while_a_text_is_tokenized(tokenizer: Tokenizer) -> None:
    """The interpreter is not held meanwhile, which takes a second or so."""
    worker = threading.Thread(target=tokenizer.encode, args=("The quick brown fox jumps over the lazy dog. " * 40_000,))
    worker.start()
    num_turns = 0
    while worker.is_alive():
        worker.join(0.001)
        num_turns += 1
    assert num_turns > 20


def test_many_tokens_are_decoded_in_pieces(smollm2: ServedModel) -> None:
    """The joints do not show: not even within a character."""
    text = "naïve 🦜 " * 40_000
    assert smollm2.tokenizer.decode(smollm2.tokenizer.encode(text)) == text
