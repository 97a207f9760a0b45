import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.fake_server import FakeServer

SLUICEGATE = str(Path(sys.executable).with_name("sluicegate"))
SOON_S = 20.0


def _run(server: FakeServer, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [SLUICEGATE, *arguments, "--address", server.address]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=SOON_S)


def test_generate_prints_the_text_and_then_the_figures(server: FakeServer) -> None:
    """stdout holds the text alone, stderr usage, TTFT and tokens/s."""
    done = _run(server, "generate", "one two", "--temperature", "0", "--max-tokens", "8", "--priority", "-3")
    assert (done.returncode, done.stdout) == (0, "one two \n")
    assert "2 prompt tokens, 2 output tokens, TTFT 0." in done.stderr
    assert "tokens/s" in done.stderr
    params = server.service.requests[0].sampling_params
    assert (params.temperature, params.max_tokens, server.service.requests[0].priority) == (0, 8, -3)
    assert params.HasField("temperature")
    assert not params.HasField("top_p")


def test_generate_says_that_an_answer_was_cut_off(server: FakeServer) -> None:
    """On stderr, and only then: the text of a form may be incomplete."""
    assert "Cut off by --max-tokens" in _run(server, "generate", "one cut").stderr
    assert "Cut off" not in _run(server, "generate", "one").stderr


def test_generate_reads_standard_input(server: FakeServer) -> None:
    """- stands for standard input."""
    assert _run(server, "generate", "-", stdin="from a pipe").stdout == "from a pipe \n"


def test_generate_sends_a_chat(server: FakeServer) -> None:
    """--chat makes the prompt a user message; --system goes before it."""
    _run(server, "generate", "hello", "--chat")
    _run(server, "generate", "hello", "--system", "be brief")
    roles = [[message.role for message in request.chat.messages] for request in server.service.requests]
    assert roles == [["user"], ["system", "user"]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["refuse"], 1, "Error: sampling_params.top_p: must be in (0, 1], got 3"),
        (["hang", "--timeout", "0.2"], 1, "Error: the timeout of the call has passed"),
        (["x", "--seed", str(2**70)], 2, "seed=1180591620717411303424"),
        (["x", "--temperature", "hot"], 2, "'hot' is not a valid float"),
        (["x", "--timeout", "-1"], 2, "-1.0 is not in the range x>0"),
        (["x", "--timeout", "nan"], 2, "timeout must be a number of seconds, got nan"),
        (["\udcff"], 2, "surrogates not allowed"),
    ],
)
def test_generate_fails_with_one_line(server: FakeServer, arguments: list[str], code: int, message: str) -> None:
    """Exit code 1 for a call that failed, 2 for wrong usage, and no traceback."""
    done = _run(server, "generate", *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_cancels_the_call_and_exits_130(server: FakeServer) -> None:
    """What was printed stays, the server hears of it."""
    command = [SLUICEGATE, "generate", "one hang", "--address", server.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == b"one "
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=SOON_S)
    assert (process.returncode, stderr) == (130, b"")
    assert server.service.ended.wait(SOON_S)


def test_chat_from_a_pipe_reads_like_a_transcript(server: FakeServer) -> None:
    """Questions are echoed, every turn carries the ones before it, /reset forgets them, the end of input leaves."""
    done = _run(server, "chat", "--system", "short", stdin="first\n\nsecond\n/reset\nthird\n")
    assert done.returncode == 0
    assert done.stdout.startswith("> first\nshort first \n")
    sent = [[message.content for message in request.chat.messages] for request in server.service.requests]
    assert sent[0] == ["short", "first"]
    assert sent[1] == ["short", "first", "short first ", "second"]
    assert sent[2] == ["short", "third"]


def test_chat_from_a_pipe_ends_at_the_first_error(server: FakeServer) -> None:
    """Nobody is there to read it and go on."""
    done = _run(server, "chat", stdin="refuse\nnever sent\n")
    assert done.returncode == 1
    assert "must be in (0, 1]" in done.stderr
    assert len(server.service.requests) == 1


def test_chat_on_a_terminal_survives_ctrl_c_and_errors(server: FakeServer) -> None:
    """Ctrl-C stops the answer, an error is shown, Ctrl-D leaves with exit code 0."""
    terminal, child_end = pty.openpty()
    command = [SLUICEGATE, "chat", "--address", server.address]
    with subprocess.Popen(command, stdin=child_end, stdout=child_end, stderr=child_end) as process:
        os.close(child_end)
        _type(terminal, "> ", "partial hang\n")
        _read_until(terminal, "partial hang\r\n")
        _read_until(terminal, "partial ")
        process.send_signal(signal.SIGINT)
        _type(terminal, "> ", "refuse\n")
        _read_until(terminal, "Error: ")
        _type(terminal, "> ", "\x04")
        assert process.wait(SOON_S) == 0
    os.close(terminal)


def _type(terminal: int, after: str, text: str) -> None:
    _read_until(terminal, after)
    os.write(terminal, text.encode())


def _read_until(terminal: int, text: str) -> None:
    seen = ""
    while text not in seen:
        seen += os.read(terminal, 1).decode(errors="replace")


def test_generate_sends_a_form(server: FakeServer, tmp_path: Path) -> None:
    """Schemas and grammars from files, the rest as it stands; one form at a time."""
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.ebnf"
    schema.write_text('{"type": "object"}')
    grammar.write_text('root ::= "a"')
    forms = [
        ("--json-schema", str(schema)),
        ("--grammar", str(grammar)),
        ("--regex", "a+"),
        ("--choice", "yes", "--choice", "no"),
        ("--json-object",),
    ]
    for flags in forms:
        assert _run(server, "generate", "hello", *flags).returncode == 0
    params = [request.sampling_params for request in server.service.requests]
    assert [each.WhichOneof("structured_output") for each in params] == [
        "json_schema",
        "grammar",
        "regex",
        "choice",
        "json_object",
    ]
    assert params[0].json_schema == '{"type": "object"}'
    assert params[1].grammar == 'root ::= "a"'
    assert list(params[3].choice.choices) == ["yes", "no"]
    both = _run(server, "generate", "hello", "--regex", "a+", "--json-object")
    assert both.returncode == 2
    assert "--regex and --json-object exclude each other" in both.stderr


def test_a_call_at_the_wrong_address_says_so(server: FakeServer) -> None:
    """Clients and operators have one each."""
    command = [SLUICEGATE, "lora", "--admin-address", server.address, "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"Error: {server.address} does not have this call: clients and operators call at different ones" in done.stderr
    )
