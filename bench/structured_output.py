"""What structured output costs: `python -m bench.structured_output FOLDER`, which has a model's tokenizer.json."""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from core.structured_output.form import Form, FormError
from core.structured_output.grammar_text import write_grammar
from core.structured_output.vocabulary import load_vocabulary, start_matcher

_MAX_TOKENS = 200


def _properties(count: int) -> dict[str, Any]:
    names = [f"property {number}" for number in range(count)]
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names[::2]}


_TREE = {"$defs": {"n": {"type": "object", "properties": {"l": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"}
_PATTERNS = {
    "type": "array",
    "items": {"anyOf": [{"type": "string", "format": f} for f in ("email", "date-time", "uuid")]},
}
_JSON_EBNF = r"""
root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (string ws ":" ws value ws ("," ws string ws ":" ws value ws)*)? "}"
array ::= "[" ws (value ws ("," ws value ws)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?
ws ::= [ \n]*
"""
FORMS = {
    "2 properties": Form("json", json.dumps(_properties(2))),
    "200 properties": Form("json", json.dumps(_properties(200))),
    "formats": Form("json", json.dumps(_PATTERNS)),
    "recursive $ref": Form("json", json.dumps(_TREE)),
    "any JSON object": Form("json_object", "true"),
    "3,000 enum values": Form("json", json.dumps({"enum": [f"value {number}" for number in range(3000)]})),
    "regex": Form("regex", r"[A-Z][a-z]+( [a-z]+)*, \d{4}"),
    "choice of 3": Form("choice", '["yes", "no", "no idea"]'),
    "JSON in EBNF": Form("grammar", _JSON_EBNF),
    "late repeats": Form("regex", "[a-z]{20}(a{1000}){1000}"),
    "repeats": Form("regex", "(a{1000}){1000}"),
}


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the milliseconds of CPU time that it took."""
    before = time.process_time()
    result = call()
    return result, (time.process_time() - before) * 1000


def _masks(matcher: LLMatcher, vocabulary: LLTokenizer) -> list[float]:
    """What each mask takes along a random text, in milliseconds."""
    draw = random.Random(0)
    times: list[float] = []
    while len(times) < _MAX_TOKENS and not matcher.is_stopped():
        mask, milliseconds = _timed(matcher.compute_bitmask)
        times.append(milliseconds)
        bits = int.from_bytes(mask, "little")
        allowed = [token_id for token_id in range(vocabulary.vocab_size) if bits >> token_id & 1]
        if not allowed or not matcher.consume_token(draw.choice(allowed)):
            break
    return times


def main(folder: str) -> None:
    """Print a line for each form."""
    vocabulary, milliseconds = _timed(lambda: load_vocabulary(Path(folder), _vocab_size(Path(folder))))
    print(f"vocabulary of {vocabulary.vocab_size} tokens read in {milliseconds:.0f} ms of CPU time")
    print(f"{'form':20} {'compile':>10} {'mask, mean':>12} {'worst':>9}")
    for name, form in FORMS.items():
        try:
            matcher, milliseconds = _timed(lambda form=form: start_matcher(vocabulary, write_grammar(form)))  # type: ignore[misc]
        except FormError as error:
            print(f"{name:20} refused: {error}")
            continue
        times = _masks(matcher.deep_copy(), vocabulary)
        print(f"{name:20} {milliseconds:7.1f} ms {statistics.mean(times):9.3f} ms {max(times):6.1f} ms")


def _vocab_size(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["vocab_size"])


if __name__ == "__main__":
    main(sys.argv[1])
