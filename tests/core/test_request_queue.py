"""The order among requests."""

import random

import pytest

from core.config import SchedulingPolicy
from core.request import Request
from core.request_queue import RequestQueue
from core.wire.sampling_params import SamplingParams
from tests.core.builders import make_message

NAN = float("nan")


def make(request_id: str, priority: int = 0, arrival_time: float = 0.0, arrival_number: int = 0) -> Request:
    message = make_message(request_id, priority=priority, arrival_time=arrival_time)
    request = Request(message, SamplingParams(), engine_seed=0, max_num_tokens=64)
    request.arrival_number = arrival_number
    return request


@pytest.mark.parametrize(
    ("policy", "expected"), [("fcfs", ["a", "b", "c", "d", "e"]), ("priority", ["d", "e", "b", "c", "a"])]
)
def test_a_policy_decides_the_order(policy: SchedulingPolicy, expected: list[str]) -> None:
    """Numbers of arrival; or priority, then the front end's clock, what is no time last, then the id."""
    requests = [
        make("a", priority=1, arrival_time=0.0, arrival_number=0),
        make("b", priority=0, arrival_time=9.0, arrival_number=1),
        make("c", priority=0, arrival_time=NAN, arrival_number=2),
        make("d", priority=-1, arrival_time=5.0, arrival_number=3),
        make("e", priority=-1, arrival_time=5.0, arrival_number=4),
    ]
    random.Random(1).shuffle(requests)
    queue = RequestQueue(policy)
    for request in requests:
        queue.add(request)
    assert [request.request_id for request in queue] == expected


def test_any_request_can_be_taken_out_and_comes_back_to_its_place() -> None:
    """The first, the last and one between them."""
    queue = RequestQueue("fcfs")
    requests = [make(str(i), arrival_number=i) for i in range(5)]
    for request in requests:
        queue.add(request)
    for i in (0, 2, 4):
        queue.remove(requests[i])
    assert [*queue] == [requests[1], requests[3]]
    for i in (2, 4, 0):
        queue.add(requests[i])
    assert ([*queue], len(queue), queue[0]) == (requests, 5, requests[0])
    assert queue.pop_last() is requests[4]


@pytest.mark.parametrize(("policy", "expected"), [("fcfs", [0, 1]), ("priority", [0, 3])])
def test_those_that_come_before_one_that_is_elsewhere(policy: SchedulingPolicy, expected: list[int]) -> None:
    """By arrival, or by priority; all of them, in their order."""
    queue, priorities = RequestQueue(policy), [0, 2, 2, 0]
    requests = [make(str(i), priorities[i], arrival_number=i) for i in range(4)]
    for i in (0, 1, 3):
        queue.add(requests[i])
    requests[2].priority = 1
    assert queue.before(requests[2]) == [requests[i] for i in expected]
