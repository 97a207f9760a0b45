"""The Python client's conformance: see ../conformance/README.md for what is called, and expected.txt for the lines."""

import os
import sys
from pathlib import Path

from sluicegate_client import (
    Client,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    Retry,
    SluicegateError,
    UnauthenticatedError,
    UnavailableError,
    tls_credentials,
)

PROMPT = "The capital of France is"
CHAT = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]


def print_unary(client: Client) -> None:
    answer = client.generate(PROMPT, temperature=0, max_tokens=2)
    usage = f"{answer.usage.num_prompt_tokens} prompt tokens, {answer.usage.num_output_tokens} output tokens"
    print(f'unary: "{answer.text}" {answer.finish_reason.name}, {usage}')


def print_tokens(client: Client) -> None:
    text = "Grüße, 世界 🙂"
    back = client.detokenize(client.tokenize(text, add_special_tokens=False))
    print(f'tokens: "{back}" {"comes back" if back == text else "differs"}')


def print_stream(client: Client) -> None:
    with client.stream(chat=CHAT, temperature=0, max_tokens=32) as stream:
        text = "".join(delta.text for delta in stream)
    assert stream.started is not None
    assert stream.usage is not None
    reason = stream.finished[0].finish_reason.name
    tokens = f"{stream.started.num_prompt_tokens} prompt tokens", f"{stream.usage.num_output_tokens} output tokens"
    print(f'stream: {tokens[0]}, "{text}", {reason}, {tokens[1]}')


def print_overload_and_retry(client: Client) -> None:
    with client.stream("Hello", n=4, temperature=1, ignore_eos=True, max_tokens=300) as others:
        next(others)
        try:
            client.generate(PROMPT, temperature=0, max_tokens=2)
        except OverloadedError as error:
            told = "to be retried" if error.retry_after is not None else "without a delay"
            print(f"overload: {error.code.name} {error.reason}, {told}")
        answer, refusals = generate_with_retries()
        print(f'retry: "{answer}" {"after a refusal" if refusals else "at once"}')
        for _ in others:
            pass


def generate_with_retries() -> tuple[str, int]:
    refusals = []
    retry = Retry(max_attempts=100, on_wait=lambda error, _: refusals.append(error))
    with Client(os.environ["SLUICEGATE_ADDRESS"], retry=retry) as client:
        return client.generate(PROMPT, temperature=0, max_tokens=2).text, len(refusals)


def print_cancel(client: Client) -> None:
    deltas = 0
    with client.stream("Hello", ignore_eos=True, max_tokens=2000) as stream:
        for _ in stream:
            if (deltas := deltas + 1) == 3:
                stream.cancel()
    # The iteration ends without an error after the caller's own cancel: that it was one is what the stream says.
    print(f"cancel: {'CANCELLED' if stream.cancelled and not stream.finished else 'ended'} after {deltas} deltas")


def print_deadline(client: Client) -> None:
    try:
        client.generate("Hello", ignore_eos=True, max_tokens=2000, timeout=0.2)
    except DeadlineExceededError as error:
        print(f"deadline: {error.code.name}")


def print_invalid(client: Client) -> None:
    try:
        client.generate(PROMPT, top_p=3, max_tokens=0)
    except InvalidRequestError as error:
        print(f"invalid: {error.code.name} {error.reason}")
        for violation in error.violations:
            print(f"invalid: {violation.field}: {violation.description}")
    try:
        client.generate(PROMPT, model="no-such-model")
    except NotFoundError as error:
        print(f"unknown model: {error.code.name} {error.reason}")


def print_tls(address: str, authority: Path, key: str) -> None:
    trusted = tls_credentials(authority)
    with Client(address, credentials=trusted, api_key=key) as client:
        print(f'tls: "{client.generate(PROMPT, temperature=0, max_tokens=2).text}" with a key')
    with Client(address, credentials=trusted) as client:
        try:
            client.generate(PROMPT, max_tokens=2)
        except UnauthenticatedError as error:
            print(f"no key: {error.code.name} {error.reason}")
    with Client(address, credentials=tls_credentials(), api_key=key) as client:
        try:
            client.generate(PROMPT, max_tokens=2)
        except UnavailableError as error:
            print(f"untrusted: {error.code.name}")


def main() -> None:
    variables = os.environ
    with Client(variables["SLUICEGATE_ADDRESS"], retry=Retry(max_attempts=1)) as client:
        print_unary(client)
        print_tokens(client)
        print_stream(client)
        print_overload_and_retry(client)
        print_cancel(client)
        print_deadline(client)
        print_invalid(client)
    authority = Path(variables["SLUICEGATE_TLS_CA"])
    print_tls(variables["SLUICEGATE_TLS_ADDRESS"], authority, variables["SLUICEGATE_API_KEY"])


if __name__ == "__main__":
    try:
        main()
    except SluicegateError as error:
        sys.exit(f"{error.code.name}: {error}")
