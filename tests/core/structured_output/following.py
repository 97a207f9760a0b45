"""Whether a text follows a grammar."""

from llguidance import LLMatcher, LLTokenizer

from core.structured_output.form import Form, Kind, Spacing
from core.structured_output.grammar_text import write_grammar
from core.structured_output.vocabulary import start_matcher


def matcher_of(
    vocabulary: LLTokenizer, kind: Kind, text: str, *, closes_objects: bool = False, **spacing: object
) -> LLMatcher:
    """Raises FormError."""
    return start_matcher(vocabulary, write_grammar(Form(kind, text, Spacing(**spacing), closes_objects)))


def follows(matcher: LLMatcher, vocabulary: LLTokenizer, text: str) -> bool:
    """All of ``text``, byte by byte, to a place where it may end."""
    matcher = matcher.deep_copy()
    token_ids = vocabulary.greedy_tokenize(text)
    return matcher.try_consume_tokens(token_ids) == len(token_ids) and matcher.is_accepting()
