"""What `make demo` runs: a server, an answer to a chat and to a plain prompt as they are generated, a clean end."""

import sys
from typing import Any

import click

from bench.server_process import ServerError, ServerProcess
from sluicegate_client import Client, FinishReason, SluicegateError
from sluicegate_client.terminal import print_figures, print_stream

_ADDRESSES = ["--grpc-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]
SERVE = ["serve", "smollm2-135m", *_ADDRESSES]
START_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 300.0
DRAIN_TIMEOUT_S = 60.0

QUESTION = "What is gravity? Answer in one sentence."
PROMPT = "Once upon a time, in a village by the sea, there lived"


class DemoError(Exception):
    """An answer did not end as it should."""


def main() -> int:
    """Returns the exit code: 0 only if all went well."""
    click.secho(f"$ sluicegate {' '.join(SERVE)}", bold=True)
    try:
        with ServerProcess(SERVE, on_ready_line=click.echo) as server:
            _talk(server)
    except (ServerError, DemoError) as error:
        click.secho(f"\nThe demo failed: {error}", err=True, fg="red")
        return 1
    except KeyboardInterrupt:
        return 130
    click.secho("\nDrained and gone, exit code 0.", bold=True)
    return 0


def _talk(server: ServerProcess) -> None:
    address = server.wait_until_ready(START_TIMEOUT_S)
    try:
        with Client(address) as client:
            client.wait_until_ready(START_TIMEOUT_S)
            click.secho(f"\n> {QUESTION}", bold=True)
            _answer(client, None, chat=[{"role": "user", "content": QUESTION}])
            click.secho(f"\n{PROMPT}", bold=True, nl=False)
            _answer(client, PROMPT)
    except SluicegateError as error:
        raise DemoError(f"{error}; the server's log:\n{server.log}") from error
    server.terminate(DRAIN_TIMEOUT_S)


def _answer(client: Client, prompt: str | None, **options: Any) -> None:
    with client.stream(prompt, timeout=ANSWER_TIMEOUT_S, temperature=0, max_tokens=48, **options) as stream:
        answer = print_stream(stream)
    if answer.interrupted:
        raise KeyboardInterrupt
    if stream.usage is None or stream.finished[0].finish_reason not in (FinishReason.STOP, FinishReason.LENGTH):
        raise DemoError(f"the stream ended with {stream.finished}")
    print_figures(stream.usage, answer.speed, err=False)


if __name__ == "__main__":
    sys.exit(main())
