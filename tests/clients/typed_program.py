"""What a program with types does with the client: `mypy --strict` must find nothing to say. See test_package.py."""

import asyncio
from pathlib import Path

from sluicegate_client import (
    AsyncClient,
    Client,
    Delta,
    FinishReason,
    GenerateOptions,
    Generation,
    InvalidRequestError,
    OverloadedError,
    Retry,
    SluicegateError,
    Stream,
    TokenLogprobs,
    Usage,
    Violation,
    tls_credentials,
)

OPTIONS: GenerateOptions = {"temperature": 0.7, "top_p": 0.9, "max_tokens": 64, "stop": ["\n"], "logprobs": 2}


def say_wait(error: SluicegateError, wait_s: float) -> None:
    print(f"{error.reason or error.code.name}: waiting for {wait_s:.1f} s")


def best(position: TokenLogprobs) -> int:
    return max(position.top, key=lambda token_id: position.top[token_id])


def talk(address: str, authority: Path) -> int:
    retry = Retry(max_attempts=3, max_wait_s=10, on_wait=say_wait)
    with Client(address, credentials=tls_credentials(authority), api_key="key", retry=retry) as client:
        generation: Generation = client.generate("Hello", timeout=30, **OPTIONS)
        reason: FinishReason = generation.finish_reason
        tokens: list[int] = client.tokenize(chat=[{"role": "user", "content": generation.text}])
        vector: list[float] = client.embed(token_ids=tokens, normalize=True)
        stream: Stream = client.stream("Hello", resume=True, **OPTIONS)
        with stream:
            deltas: list[Delta] = [*stream]
        usage: Usage | None = stream.usage
    num_output_tokens = usage.num_output_tokens if usage is not None else 0
    return num_output_tokens + len(vector) + len(deltas) + len(reason) + best(deltas[0].logprobs[0])


async def talk_async(address: str) -> tuple[Violation, ...]:
    async with AsyncClient(address) as client, client.multiplexed(timeout=60) as session:
        await client.wait_until_ready(timeout=10)
        try:
            async for delta in session.stream("Hello", seed=1):
                print(delta.text, end="")
            async for delta in client.stream("Hello", resume=True):
                print(delta.text, end="")
        except OverloadedError as error:
            await asyncio.sleep(error.retry_after or 1.0)
        except InvalidRequestError as error:
            return error.violations
    return ()


def wrong(client: Client) -> None:
    client.generate("Hello", temprature=1)  # type: ignore[call-arg]
    client.generate("Hello", max_tokens="many")  # type: ignore[arg-type]
    client.stream("Hello", retries=3)  # type: ignore[call-arg]
