"""The page in Chromium, through Envoy, with a real server behind it."""

from pathlib import Path

import grpc
import pytest
from selenium.webdriver.common.keys import Keys

from service.models import ModelFiles
from sluicegate.v1 import control_service_pb2 as control
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate_client import Client
from tests.deploy.envoy.null_server import null_serving
from tests.deploy.envoy.proxy import proxying, set_backends, set_origin, set_page, shipped
from tests.deploy.web.browser import Browser
from tests.e2e.server import Server
from tests.interop.program import free_port

QUESTION = "What is the capital of France?"
KEY = "a-key-of-some-length"
MARKUP = "<img src=x onerror=alert(1)> <script>alert(1)</script> é \u0645\u0631 😀"
LONG = "Write a very long story about a river, in many chapters."
TEMPERATURE, MAX_TOKENS = "sampling_params.temperature", "sampling_params.max_tokens"

_NOTE_LENGTHS = """
window.lengths = new Set();
new MutationObserver(() => lengths.add(document.querySelector('.answer .text')?.textContent.length ?? 0))
  .observe(document.getElementById('transcript'), {childList: true, subtree: true});
"""


def _greedy(browser: Browser, max_tokens: int) -> None:
    browser.set(TEMPERATURE, "0")
    browser.set(MAX_TOKENS, str(max_tokens))


def test_an_answer_comes_as_it_is_made(browser: Browser, client: Client, tmp_path: Path) -> None:
    """In many pieces; whole it is what the Python client gets for the same request. It is seen, its pace below it."""
    _greedy(browser, 40)
    browser.run(_NOTE_LENGTHS)
    browser.ask(LONG)
    answer = browser.until_answered()
    expected = client.generate(chat=[{"role": "user", "content": LONG}], temperature=0, max_tokens=40)
    assert answer == expected.outputs[0].text
    # Not one for each token: tokens that come within one frame are seen at once.
    assert browser.run("return lengths.size") > 3
    assert all(word in browser.text(".answer .pace") for word in ("TTFT", "tokens/s", "tokens"))
    assert browser.complaints == []
    browser.save(tmp_path / "answer.png")
    assert 0.01 < browser.ink(".answer .text") < 0.5


def test_a_conversation_goes_on(browser: Browser, client: Client) -> None:
    """The second question is asked with all that was said before, and the system message."""
    _greedy(browser, 16)
    browser.set("system", "Answer in one sentence.")
    browser.ask(QUESTION)
    first = browser.until_answered()
    browser.ask("And of Italy?")
    said = [("system", "Answer in one sentence."), ("user", QUESTION), ("assistant", first), ("user", "And of Italy?")]
    chat = [{"role": role, "content": content} for role, content in said]
    expected = client.generate(chat=chat, temperature=0, max_tokens=16)
    assert browser.until_answered(2) == expected.outputs[0].text


def test_stop_ends_it_in_the_server_too(browser: Browser, server: Server) -> None:
    """The button cancels the call: the engine is told, and what came stays. So does Escape."""
    before = server.load().num_requests
    assert before == 0
    _greedy(browser, 4000)
    for number, stop in enumerate((lambda: browser.click("#stop"), lambda: browser.press(Keys.ESCAPE)), 1):
        browser.ask(LONG)
        browser.until(f".answer:nth-of-type({2 * number}) .text:not(:empty)")
        assert server.load().num_requests == 1
        stop()
        assert browser.until_answered(number)
        assert "stopped by you" in browser.text(".answer .pace")
        server.wait_until_idle()


def test_a_question_that_was_stopped_before_its_answer(browser: Browser, server: Server, client: Client) -> None:
    """It is there to be sent again, and no part of the conversation."""
    _greedy(browser, 8)
    with grpc.insecure_channel(server.admin_address) as channel:
        admin = ControlServiceStub(channel)
        admin.PauseGeneration(control.PauseGenerationRequest(mode=control.PAUSE_MODE_KEEP))
        browser.ask("Forget this.")
        browser.until(".answer[aria-busy=true]")
        browser.press(Keys.ESCAPE)
        assert browser.until_answered() == ""
        admin.ResumeGeneration(control.ResumeGenerationRequest())
    assert browser.text(".answer .pace") == "no tokens · stopped by you"
    assert browser.run("return document.getElementById('message').value") == "Forget this."
    browser.set_message(QUESTION)
    browser.click("#send")
    expected = client.generate(chat=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=8)
    assert browser.until_answered(2) == expected.outputs[0].text


def test_a_conversation_that_is_too_long(browser: Browser) -> None:
    """The error says so and what helps, in view, however long the question that is there to be sent again."""
    browser.set_message("word " * 20_000)
    browser.click("#send")
    browser.until("[role=alert]")
    assert "max_model_len" in browser.text("[role=alert] li")
    assert "new chat" in browser.text("[role=alert]")
    seen = "const {top, bottom} = document.querySelector('[role=alert]').getBoundingClientRect();"
    log = "const log = document.getElementById('transcript').getBoundingClientRect();"
    assert browser.run(f"{seen}{log} return log.top <= top && bottom <= log.bottom")
    browser.click("#new-chat")
    assert browser.text("#transcript article") == ""


def test_an_error_stands_at_its_field(browser: Browser, tmp_path: Path) -> None:
    """With the status, and what the server says of it; the question is there to be sent again."""
    browser.set(TEMPERATURE, "3")
    browser.ask(QUESTION)
    browser.until("[role=alert]")
    assert "INVALID_ARGUMENT" in browser.text("[role=alert]")
    assert TEMPERATURE in browser.text("[role=alert] li")
    assert browser.attribute(f"[name='{TEMPERATURE}']", "aria-invalid") == "true"
    note = browser.attribute(f"[name='{TEMPERATURE}']", "aria-describedby")
    assert "[0, 2]" in browser.text(f"[id='{note}']")
    browser.save(tmp_path / "error.png")
    assert 0.01 < browser.ink("[role=alert]") < 0.5
    browser.set(TEMPERATURE, "0")
    browser.click("#send")
    assert browser.until_answered(2)
    assert browser.attribute(f"[name='{TEMPERATURE}']", "aria-invalid") is None


@pytest.mark.parametrize(
    ("name", "value"), [(MAX_TOKENS, "many"), ("address", "localhost:8080"), ("api_key", "a key of words")]
)
def test_a_setting_with_which_nothing_can_be_sent(browser: Browser, name: str, value: str) -> None:
    """The page says so itself, at the field."""
    browser.set(name, value)
    browser.ask(QUESTION)
    browser.until("[role=alert]")
    assert name in browser.text("[role=alert] li")
    assert "not sent" in browser.text(".answer .pace")
    assert browser.attribute(f"[name='{name}']", "aria-invalid") == "true"
    assert browser.complaints == []


def test_a_server_that_is_not_there_is_an_error(browser: Browser) -> None:
    """Of its own, not a page that waits."""
    browser.set("address", f"http://127.0.0.1:{free_port()}")
    browser.ask(QUESTION)
    browser.until("[role=alert]")
    assert browser.text("[role=alert] strong") == "UNAVAILABLE"
    assert browser.complaints


def test_a_server_elsewhere(browser: Browser, byte_model: ModelFiles, page: Path, tmp_path: Path) -> None:
    """At the address that is set, if that allows pages of this one; without its key it refuses.

    What it says is text, and no markup that is run. When it dies while it answers, what came stays, with an error.
    """
    keys = tmp_path / "keys"
    keys.write_text(f"alice:{KEY}\n")
    config = shipped("grpc-web.yaml")
    set_page(config, page)
    set_origin(config, browser.origin)
    with null_serving(byte_model, MARKUP, "--api-key-file", str(keys)) as server:
        set_backends(config, [server.address])
        with proxying(config, tmp_path) as envoy:
            browser.set(MAX_TOKENS, str(len(MARKUP.encode())))
            browser.set("address", f"http://{envoy.address}")
            browser.ask(MARKUP)
            browser.until("[role=alert]")
            assert browser.text("[role=alert] strong") == "UNAUTHENTICATED"
            browser.set("api_key", KEY)
            browser.click("#send")
            # Its tokens, a byte each, come in turn: from anywhere on.
            answer = browser.until_answered(2)
            assert answer in MARKUP * 2
            assert len(answer) == len(MARKUP)
            assert browser.text(".question .text") == MARKUP
            assert browser.run("return document.querySelectorAll('#transcript .text *').length") == 0
            browser.set(MAX_TOKENS, "4000")
            browser.ask(QUESTION)
            browser.until(".answer:nth-of-type(6) .text:not(:empty)")
            server.gateway.kill()
            browser.until(".answer:nth-of-type(6) [role=alert]")
            assert browser.text("[role=alert] strong") == "UNAVAILABLE"
            assert browser.until_answered(3)


def test_an_example_leaves_what_was_written(browser: Browser) -> None:
    """It is asked at once, and the keyboard stays with the message."""
    browser.set(MAX_TOKENS, "4")
    browser.set_message("a draft")
    browser.click("#examples button")
    assert browser.until_answered()
    assert browser.run("return document.activeElement.value") == "a draft"


def test_every_control_has_a_name(browser: Browser) -> None:
    """Whoever hears the page knows what each button and each input is for."""
    names = browser.run(
        "return [...document.querySelectorAll('button, input, select, textarea')].map(control =>"
        " (control.labels?.[0] ?? control).textContent.trim())"
    )
    assert len(names) > 10
    assert all(names)
