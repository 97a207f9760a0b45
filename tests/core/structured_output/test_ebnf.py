"""EBNF becomes Lark, and means the same."""

import pytest
from llguidance import LLTokenizer

from core.structured_output.ebnf import ebnf_to_lark
from core.structured_output.form import FormError
from tests.core.structured_output.following import follows, matcher_of


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "a" [0-9]+', ["a1", "a42"], ["a", "b1", "a1b"]),
        ('root ::= "SELECT" | [A-Z]+ "T"', ["SELECT", "SET", "SELECTT"], ["SELEC", "T", ""]),
        ('root ::= word "x"\nword ::= [a-z]+', ["foox", "xx"], ["x", "foo"]),
        ('root ::= list\nlist ::= "[" (list ("," list)*)? "]"', ["[]", "[[],[[]]]"], ["[", "[,]", "[]]"]),
        ('root ::= sum\nsum ::= sum "+" n | n\nn ::= [0-9]+', ["1", "12+3"], ["+1", "1+", ""]),
        ('root ::= a "x"\na ::= [a-z] a | ', ["x", "fox", "xxx"], ["", "fo"]),
        ('root ::= ("a"{1,2} "-"?){2} "b"{2,}', ["aabb", "aa-a-bbb"], ["abb", "aab"]),
        ("root ::= 'it''s' \"\\\"\" [^\\]a]", ['its"b', 'its"é'], ['its"a', 'its"]']),
        ('root ::= "é\\u4e2d" [à-ÿ\\U0001F600-\\U0001F64F] .', ["é中🙂\n", "é中ÿ中"], ["é中a.", "é"]),
        ('# first\nroot ::= "a"  # one\n  | "b"\n  | ("c"\n "d")', ["a", "b", "cd"], ["ab", "c"]),
        ("root::=[-a]+|[b-]", ["-a-", "b", "-"], ["bb"]),
    ],
)
def test_texts_of_the_language_follow_it(
    vocabulary: LLTokenizer, grammar: str, good: list[str], bad: list[str]
) -> None:
    """All of them, and no others: whether a literal begins another, or a class has its characters."""
    matcher = matcher_of(vocabulary, "grammar", grammar)
    assert {text: follows(matcher, vocabulary, text) for text in good + bad} == dict.fromkeys(
        good, True
    ) | dict.fromkeys(bad, False)


@pytest.mark.parametrize(
    ("grammar", "fault"),
    [
        ("", "must have a rule named root"),
        ('start ::= "a"', "must have a rule named root"),
        ('root = "a"', "line 1, column 6: '= \"a\"' is not understood"),
        ('root ::= "a"\n  other', "line 2, column 3: there is no rule 'other'"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: the rule 'root' is there already"),
        ('root ::= ("a"', "line 1, column 10: this parenthesis is not closed"),
        ('root ::= "a")', "line 1, column 13: this parenthesis was not opened"),
        ('root ::= "a', "line 1, column 10: '\"a' is not understood"),
        ("root ::= *", "line 1, column 10: '*' has no place here"),
        ("root ::= []", "line 1, column 10: a class of characters must not be empty"),
        (r'root ::= "\q"', r"line 1, column 10: the escape \q is not known"),
        (r'root ::= "\uD800"', "line 1, column 10: D800 is no character of Unicode"),
        ('root ::= (="a") "b"', "line 1, column 10: lookahead is not supported"),
        ('root ::= TagDispatch("a")', "line 1, column 10: TagDispatch(…) is not supported"),
        ('"a"', "line 1, column 1: a rule begins with its name and ::="),
    ],
)
def test_a_fault_has_a_place(grammar: str, fault: str) -> None:
    """Line and column, and what is wrong there."""
    with pytest.raises(FormError) as caught:
        ebnf_to_lark(grammar)
    assert str(caught.value) == fault


def test_lark_is_left_as_it_is() -> None:
    """llguidance's own dialect is known by its rule ``start``."""
    lark = 'start: "a" b\nb: /[0-9]+/'
    assert ebnf_to_lark(lark) == lark
