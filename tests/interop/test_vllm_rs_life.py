"""How vLLM's Rust front end and our core begin and end together, in each of the ways in which they can meet."""

import http.client
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.interop.openai_api import ApiError, OpenAIApi
from tests.interop.program import PATIENCE_S
from tests.interop.reference import CAPITAL, NUM_TOKENS, STORY, check_tokens
from tests.interop.vllm_rs import bootstrapped, core, introduce, listening_for_core, serving_child

pytestmark = pytest.mark.interop

ENDLESS = {"max_tokens": 8000, "ignore_eos": True, "temperature": 0}


def _check_served(api: OpenAIApi) -> None:
    options = {"temperature": 0, "max_tokens": NUM_TOKENS, "logprobs": 1, "return_token_ids": True}
    (choice,) = api.complete(CAPITAL["prompt_text"], **options)["choices"]
    check_tokens(CAPITAL, choice["token_ids"], choice["logprobs"]["token_logprobs"])


def test_sigterm_ends_the_front_end_with_0_and_the_core_with_it(vllm_rs_program: Path) -> None:
    """The open stream ends properly, with what the core says of it; no process is left."""
    with serving_child(vllm_rs_program) as front_end:
        with front_end.api.stream_complete(STORY["prompt_text"], **ENDLESS) as stream:
            next(stream)
            core_process = front_end.core
            front_end.program.send_signal(signal.SIGTERM)
            *_, last = (choice for event in stream for choice in event["choices"])
        assert last["finish_reason"] == "abort"
        assert front_end.program.wait() == 0
        assert "shut down" in front_end.program.log
        core_process.wait(PATIENCE_S)


def test_with_a_time_to_shut_down_the_core_finishes_what_runs(vllm_rs_program: Path) -> None:
    """--shutdown-timeout reaches the core: the open stream comes to its natural end."""
    with serving_child(vllm_rs_program, options=("--shutdown-timeout", "60")) as front_end:
        with front_end.api.stream_complete(STORY["prompt_text"], max_tokens=16, temperature=0) as stream:
            next(stream)
            front_end.program.send_signal(signal.SIGTERM)
            *_, last = (choice for event in stream for choice in event["choices"])
        assert last["finish_reason"] == "length"
        assert front_end.program.wait() == 0


def test_a_core_that_is_killed_cuts_the_stream_and_ends_its_front_end_with_1(vllm_rs_program: Path) -> None:
    """What vLLM's front end does, which has no second core to give."""
    with serving_child(vllm_rs_program) as front_end:
        with front_end.api.stream_complete(STORY["prompt_text"], **ENDLESS) as stream:
            next(stream)
            front_end.core.kill()
            with pytest.raises(http.client.HTTPException):
                list(stream)
        assert front_end.program.wait() == 1


def test_a_front_end_that_is_killed_takes_its_core_along(vllm_rs_program: Path) -> None:
    """It tells nobody; the core sees it go."""
    with serving_child(vllm_rs_program) as front_end:
        core_process = front_end.core
        front_end.program.send_signal(signal.SIGKILL)
        core_process.wait(PATIENCE_S)


def test_a_core_of_its_own_serves_a_front_end_that_starts_none(vllm_rs_program: Path) -> None:
    """It dials the handshake over TCP; SIGTERM ends each of them with 0."""
    with listening_for_core(vllm_rs_program) as (front_end, api, dial), core("--headless", *dial) as engine:
        front_end.wait_until_served(f"http://127.0.0.1:{api.port}/health")
        _check_served(api)
        for program in (engine, front_end):
            program.send_signal(signal.SIGTERM)
            assert program.wait() == 0


def test_a_core_that_is_killed_is_replaced_by_a_new_one(vllm_rs_program: Path, vllm_version: str, folder: Path) -> None:
    """Without a handshake the front end notices nothing, and takes a new core of the same identity for the old one."""
    dial = ["--handshake-address", f"ipc://{folder}/handshake"]
    with bootstrapped(vllm_rs_program, vllm_version, folder) as (front_end, api):
        with core(*dial) as engine:
            introduce(folder)
            front_end.wait_until_served(f"http://127.0.0.1:{api.port}/health")
            _check_served(api)
            with api.stream_complete(STORY["prompt_text"], **ENDLESS) as stream:
                next(stream)
                engine.kill()
        assert api.get("/health") == ""
        with core(*dial):
            introduce(folder)
            _check_served_in_time(api)


def _check_served_in_time(api: OpenAIApi) -> None:
    """The first requests may still be sent to the core that is gone."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(ApiError):
            return _check_served(api)
    raise AssertionError("no request is served")
