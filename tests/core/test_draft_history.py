"""What is kept of a request's drafts."""

from core.draft_history import DraftHistory


def test_it_follows_the_tokens() -> None:
    """Those that were added since the last call are taken in."""
    history, token_ids = DraftHistory(), [1, 2, 3]
    for _ in range(3):
        assert history.follow(token_ids).tolist() == token_ids
        token_ids += [4, 5]


def test_drafts_are_as_long_as_the_last_one_was_right() -> None:
    """At first one token, then twice what was right and one more."""
    history, lengths = DraftHistory(), []
    for num_accepted_tokens in (1, 3, 5, 2):
        lengths.append(history.take_turn())
        history.judge(num_accepted_tokens)
    assert [*lengths, history.take_turn()] == [1, 3, 7, 11, 5]


def test_wrong_drafts_wait_longer_each_time_and_a_right_one_ends_that() -> None:
    """1, 3, 7, 15, 31 steps, then always 31; after one accepted token none."""
    history, waits = DraftHistory(), []
    for num_accepted_tokens in (0, 0, 0, 0, 0, 0, 1, 0):
        history.judge(num_accepted_tokens)
        waits.append(0)
        while not history.take_turn():
            waits[-1] += 1
    assert waits == [1, 3, 7, 15, 31, 31, 0, 1]
