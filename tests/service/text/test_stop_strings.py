"""service.text.stop_strings: the first stop string that is complete ends the text, however the text is divided."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.text.stop_strings import StopStrings

# Few letters, so that stop strings occur, overlap and nearly occur all the time.
_texts = st.text("ab", max_size=40)
_stops = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4)


def _run(stops: list[str], pieces: list[str], include_match: bool = False) -> tuple[str, str | None]:
    watcher = StopStrings(stops, include_match)
    text = ""
    for piece in pieces:
        text += watcher.feed(piece)
        if watcher.matched is not None:
            return text, watcher.matched
    return text + watcher.flush(), None


def _first_complete(stops: list[str], text: str) -> tuple[int, str] | None:
    """By definition: the least end at which some stop string is complete, and the longest that is."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return end, max(complete, key=len)
    return None


def _divided(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


@given(_stops, _texts, st.lists(st.integers(0, 40), max_size=8), st.booleans())
def test_result_is_the_definition_for_any_division(
    stops: list[str], text: str, cuts: list[int], include_match: bool
) -> None:
    """Text and match are those of the whole text, however it was cut into pieces."""
    first = _first_complete(stops, text)
    if first is None:
        expected = (text, None)
    else:
        end, stop = first
        expected = (text[: end if include_match else end - len(stop)], stop)
    assert _run(stops, _divided(text, cuts), include_match) == expected


@given(_stops, _texts)
def test_only_a_possible_beginning_is_held_back(stops: list[str], text: str) -> None:
    """After every piece, what is held back is the longest suffix that begins a stop string, and nothing more."""
    watcher = StopStrings(stops)
    seen = released = ""
    for char in text:
        seen += char
        released += watcher.feed(char)
        if watcher.matched is not None:
            return
        beginnings = [n for n in range(len(seen) + 1) if any(s.startswith(seen[len(seen) - n :]) for s in stops)]
        assert released == seen[: len(seen) - max(beginnings)]


def test_stop_string_across_pieces_leaks_nothing() -> None:
    """ "beta gamma" in three pieces: the text before it, and not a character of it."""
    assert _run(["beta gamma"], ["alpha be", "ta gam", "ma delta"]) == ("alpha ", "beta gamma")


def test_stop_string_inside_one_piece_cuts_it() -> None:
    """What follows the stop string in the same piece is dropped."""
    assert _run(["b"], ["abc"]) == ("a", "b")


def test_near_miss_is_delivered_in_full() -> None:
    """A beginning that does not become the stop string comes out, at the latest at the end."""
    assert _run(["beta gamma"], ["alpha beta ", "gamm"]) == ("alpha beta gamm", None)
    assert _run(["beta gamma"], ["alpha beta ", "gamm", "y"]) == ("alpha beta gammy", None)


def test_included_stop_string_ends_the_text() -> None:
    """With include_match the text ends right after the stop string."""
    assert _run(["ta g"], ["alpha be", "ta gam"], include_match=True) == ("alpha beta g", "ta g")


def test_included_stop_string_holds_nothing_back() -> None:
    """What will be shown in any case is not withheld."""
    watcher = StopStrings(["beta gamma"], include_match=True)
    assert watcher.feed("alpha beta") == "alpha beta"


def test_longest_wins_among_those_complete_together() -> None:
    """ "c" and "abc" are complete at the same character: "abc" is named and cut."""
    assert _run(["c", "abc", "bc"], ["xabc"]) == ("x", "abc")


def test_complete_first_wins_over_begun_first() -> None:
    """ "abcd" begins before "bc" and is not waited for."""
    assert _run(["abcd", "bc"], ["xabcd"]) == ("xa", "bc")


def test_unarmed_match_is_passed_over() -> None:
    """A stop string that ends while not armed is text; one that begins there and ends later counts."""
    watcher = StopStrings(["aa"])
    assert watcher.feed("xaa", armed=False) == "xa"
    assert watcher.matched is None
    assert watcher.feed("a") == ""
    assert watcher.matched == "aa"


def test_unarmed_match_inside_a_longer_beginning_stays_passed_over() -> None:
    """ "bc" ended while not armed; that "abcd" is still possible does not bring it back."""
    watcher = StopStrings(["abcd", "bc"])
    assert watcher.feed("abc", armed=False) == ""
    assert watcher.feed("x") == "abcx"
    assert watcher.matched is None


def test_no_stop_strings_let_everything_through() -> None:
    """Without stop strings pieces pass as they are."""
    watcher = StopStrings([])
    assert watcher.feed("anything") == "anything"
    assert watcher.flush() == ""
