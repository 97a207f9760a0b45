"""Ranks in threads, with a real coordinator and real sockets."""

from pathlib import Path
from typing import Any

import pytest

from core.data_parallel.rank_group import RankGroupError
from core.wire.messages import FinishReason
from tests.core.data_parallel.ranks import LONGEST, LockstepRanks, Rank
from tests.core.front_end import make_request


def add(rank: Rank, request_id: str, wave: int = 0, **params: Any) -> None:
    request = make_request(request_id, **params)
    request.current_wave = wave
    rank.front_end.send_request(request)


def finish_reasons(rank: Rank, *request_ids: str) -> list[FinishReason | None]:
    received = rank.front_end.receive_until_finished(*request_ids)
    return [received[request_id][-1].finish_reason for request_id in request_ids]


@pytest.mark.parametrize(("num_engines", "num_rounds"), [(2, 200), (4, 50)])
def test_requests_to_each_rank(tmp_path: Path, num_engines: int, num_rounds: int) -> None:
    """A request to each rank at the same moment, which says wave 0 whatever wave it is, is completed; then all rest."""
    with LockstepRanks(tmp_path, num_engines) as group:
        for number in range(num_rounds):
            for rank in group.ranks:
                add(rank, f"r{number}")
            for rank in group.ranks:
                assert finish_reasons(rank, f"r{number}") == [FinishReason.LENGTH]
        group.listener.receive_until_drained()


@pytest.mark.parametrize(("num_engines", "num_rounds"), [(2, 1000), (4, 50)])
def test_request_at_the_end_of_a_wave(tmp_path: Path, num_engines: int, num_rounds: int) -> None:
    """Requests to one rank after the other, each as soon as the one before is done or its wave over, are completed."""
    with LockstepRanks(tmp_path, num_engines) as group:
        for number in range(num_rounds):
            rank = group.ranks[number % num_engines]
            state = group.listener.receive_until_drained() if number % 2 else None
            add(rank, f"r{number}", state.wave if state else 0)
            if state:
                group.listener.send_first_request(rank.front_end.identity, state.wave)
            assert finish_reasons(rank, f"r{number}") == [FinishReason.LENGTH]
        group.listener.receive_until_drained()


@pytest.mark.parametrize("num_engines", [2, 4])
@pytest.mark.parametrize("mode", ["keep", "wait", "abort"])
def test_request_while_paused(tmp_path: Path, num_engines: int, mode: str) -> None:
    """A request that comes while all are paused is completed once all have resumed, one after the other."""
    with LockstepRanks(tmp_path, num_engines) as group:
        for number in range(5):
            group.call_all(10 * number, "pause_scheduler", mode)
            assert group.receive_answers(10 * number) == [None] * num_engines
            add(group.ranks[0], f"r{number}")
            for rank in group.ranks:
                rank.front_end.call(10 * number + 1, "resume_scheduler")
                assert rank.front_end.receive_answer(10 * number + 1).failure_message is None
            assert finish_reasons(group.ranks[0], f"r{number}") == [FinishReason.LENGTH]
        group.listener.receive_until_drained()


def test_pause_is_answered_when_all_are_idle(tmp_path: Path) -> None:
    """A rank without requests waits with its answer until the other has none either."""
    with LockstepRanks(tmp_path, 2) as group:
        busy, idle = group.ranks
        add(busy, "long", max_tokens=50)
        busy.front_end.receive_first("long")
        group.call_all(1, "pause_scheduler", "wait")
        assert group.receive_answers(1) == [None, None]
        assert not busy.engine.scheduler.running
        assert finish_reasons(busy, "long") == [FinishReason.LENGTH]
        assert idle.wave.number == busy.wave.number


def test_refused_request(tmp_path: Path) -> None:
    """A request that wakes the group and is refused by the rank it was for leaves nobody waiting."""
    with LockstepRanks(tmp_path, 2) as group:
        state = group.listener.receive_until_drained()
        group.listener.send_first_request(group.ranks[1].front_end.identity, state.wave)
        add(group.ranks[1], "too long", max_tokens=0)
        assert finish_reasons(group.ranks[1], "too long") == [FinishReason.ERROR]
        add(group.ranks[0], "good")
        assert finish_reasons(group.ranks[0], "good") == [FinishReason.LENGTH]
        assert group.listener.receive_until_drained().wave >= 1


def test_counts(tmp_path: Path) -> None:
    """The coordinator tells front ends how many requests each rank has, and when there are none left."""
    with LockstepRanks(tmp_path, 2) as group:
        group.call_all(1, "pause_scheduler", "keep")
        group.receive_answers(1)
        add(group.ranks[1], "held")
        while group.listener.receive().counts != [[0, 0], [1, 0]]:
            pass
        group.call_all(2, "resume_scheduler")
        group.listener.receive_until_drained()


def test_statistics(tmp_path: Path) -> None:
    """Each message says in which wave it was, and how many steps of the wave came before."""
    with LockstepRanks(tmp_path, 2) as group:
        rank = group.ranks[0]
        for wave in range(2):
            add(rank, "r", max_tokens=3)
            stats = [rank.front_end.receive().scheduler_stats for _ in range(4)]
            assert [(each.current_wave, each.step_counter) for each in stats if each] == [(wave, n) for n in range(4)]
            while group.listener.receive_until_drained().wave == wave:
                pass


def test_without_a_coordinator(tmp_path: Path) -> None:
    """Each rank tells its first front end that the wave is over."""
    with LockstepRanks(tmp_path, 2, with_coordinator=False) as group:
        for rank in group.ranks:
            add(rank, "r")
        for rank in group.ranks:
            while rank.front_end.receive().wave_complete is None:
                pass
            assert finish_reasons(rank, "r") == [FinishReason.LENGTH]


def test_rank_that_dies(tmp_path: Path) -> None:
    """The others end too, in the step in which they miss it, instead of waiting for it."""
    group = LockstepRanks(tmp_path, 4)
    victim, *others = group.ranks
    victim.ranks.close()
    add(others[0], "r", max_tokens=50)
    for rank in group.ranks:
        rank.join()
        assert isinstance(rank.error, RankGroupError)
    with pytest.raises(RankGroupError):
        group.__exit__(None, None, None)


def test_shutdown_in_a_wave(tmp_path: Path) -> None:
    """Ranks that are told to go down, one after the other, answer what they have and end well."""
    with LockstepRanks(tmp_path, 2) as group:
        for rank in group.ranks:
            add(rank, "r", max_tokens=LONGEST - 100)
            rank.front_end.receive_first("r")
        for rank in group.ranks:
            rank.stop()
            assert finish_reasons(rank, "r") == [FinishReason.ABORT]
