"""Adapters on several cores at once: on all of them or on none."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.wire.messages import EngineCoreRequest, LoRARequest
from core.wire.sampling_params import SamplingParams
from core.wire.version import WireVersion, introduction
from service.cores.adapters import AdapterError, Adapters
from service.cores.engines import Engines
from service.engine_client import EngineClient
from service.errors import AlreadyExists, FailedPrecondition, InvalidRequest, NotFound
from tests.service.fake_core import READY, FakeCore


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[Engines]:
    engines = Engines(f"ipc://{tmp_path}/in", f"ipc://{tmp_path}/out", 2)
    yield engines
    engines.close()


@pytest.fixture
async def cores(engines: Engines) -> AsyncIterator[Sequence[FakeCore]]:
    async with AsyncExitStack() as stack:
        cores = [await stack.enter_async_context(FakeCore(rank=rank)) for rank in range(2)]
        for core in cores:
            core.connect(engines.addresses)
        async with asyncio.timeout(10):
            await engines.ready
        yield cores


@pytest.fixture
def client(engines: Engines) -> EngineClient:
    return EngineClient(engines)


@pytest.fixture
def adapters(client: EngineClient, cores: Sequence[FakeCore]) -> Adapters:
    assert len(cores) == 2
    return Adapters(client, "base")


async def answer(cores: Sequence[FakeCore], *results: Any) -> list[tuple[str, list[Any]]]:
    """Each core's next call gets its result, or an exception's text as its failure. What was called, of adapters the
    name, the id and the path."""
    calls = [await core.receive_call() for core in cores]
    for core, call, result in zip(cores, calls, results, strict=True):
        failure = str(result) if isinstance(result, Exception) else None
        core.answer(call, None if failure else result, failure)
    return [(call.method, [arg[:3] if isinstance(arg, list) else arg for arg in call.args]) for call in calls]


async def test_every_core_loads_it_and_lets_it_go(adapters: Adapters, cores: Sequence[FakeCore]) -> None:
    """With one id on all; the next load has another, whatever its name."""
    for lora_id in (1, 2):
        loading = asyncio.ensure_future(adapters.load("a", "/a"))
        assert await answer(cores, True, True) == [("add_lora", [["a", lora_id, "/a"]])] * 2
        await loading
        assert adapters.by_name == {"a": LoRARequest("a", lora_id, "/a")}
        unloading = asyncio.ensure_future(adapters.unload("a"))
        assert await answer(cores, True, False) == [("remove_lora", [lora_id])] * 2
        await unloading
        assert not adapters.by_name


async def test_mirroring_another_front_end(adapters: Adapters, cores: Sequence[FakeCore]) -> None:
    """What stays is the same to a request that is being read, though it was told again; what is gone is removed."""
    await adapters.mirror([LoRARequest("a", 1, "/a")])
    in_use = adapters.by_name["a"]
    await adapters.mirror([LoRARequest("a", 1, "/a"), LoRARequest("b", 2, "/b")])
    assert sorted(adapters.by_name) == ["a", "b"]
    adapters.check_loaded(in_use)
    mirroring = asyncio.ensure_future(adapters.mirror([LoRARequest("a", 3, "/other")]))
    assert await answer(cores, True, True) == [("remove_lora", [1])] * 2
    assert await answer(cores, True, True) == [("remove_lora", [2])] * 2
    await mirroring
    assert adapters.by_name == {"a": LoRARequest("a", 3, "/other")}
    with pytest.raises(NotFound):
        adapters.check_loaded(in_use)


async def test_if_one_core_cannot_none_keeps_it(adapters: Adapters, cores: Sequence[FakeCore]) -> None:
    """The caller gets that core's sentence, and the name is free again."""
    loading = asyncio.ensure_future(adapters.load("a", "/a"))
    sentence = "/a/adapter_config.json: r is missing"
    await answer(cores, True, ValueError(f"Call to add_lora method failed: {sentence}"))
    assert await answer(cores, True, ValueError("never had it")) == [("remove_lora", [1])] * 2
    with pytest.raises(FailedPrecondition, match=f"^{sentence}$"):
        await loading
    assert repr(adapters) == "Adapters([], loading [])"


async def test_a_load_goes_on_when_its_caller_leaves(adapters: Adapters, cores: Sequence[FakeCore]) -> None:
    """The cores have it, so requests may name it; the name is taken from the beginning."""
    loading = asyncio.ensure_future(adapters.load("a", "/a"))
    calls = [await core.receive_call() for core in cores]
    with pytest.raises(AlreadyExists, match="the name 'a' is taken"):
        await adapters.load("a", "/a")
    loading.cancel()
    for core, call in zip(cores, calls, strict=True):
        core.answer(call, True)
    next_one = asyncio.ensure_future(adapters.load("b", "/b"))
    await answer(cores, True, True)
    await next_one
    assert adapters.by_name.keys() == {"a", "b"}


async def test_names_and_paths_have_bounds(adapters: Adapters) -> None:
    """They go into labels and log lines; the model's own name is taken."""
    for name, path, fields in (
        ("", "", {"name", "path"}),
        ("a,b", "/a", {"name"}),
        ("a", "\n" * 5000, {"path"}),
        ("a", os.fsdecode(b"/\xff"), {"path"}),
    ):
        with pytest.raises(InvalidRequest) as caught:
            await adapters.load(name, path)
        assert {violation.field for violation in caught.value.violations} == fields
    with pytest.raises(AlreadyExists):
        await adapters.load("base", "/a")
    with pytest.raises(NotFound):
        await adapters.unload("a")


async def test_a_request_whose_adapter_was_unloaded_is_not_sent(adapters: Adapters, cores: Sequence[FakeCore]) -> None:
    """Nor one whose adapter has a namesake now."""
    adapters.check_loaded(None)
    loading = asyncio.ensure_future(adapters.load("a", "/a"))
    await answer(cores, True, True)
    await loading
    adapters.check_loaded(adapters.by_name["a"])
    with pytest.raises(NotFound, match="no LoRA adapter 'a' is loaded"):
        adapters.check_loaded(LoRARequest("a", 7, "/a"))


async def test_one_that_cannot_be_loaded_at_the_start_is_an_error(
    adapters: Adapters, cores: Sequence[FakeCore]
) -> None:
    """Which names the flag."""
    loading = asyncio.ensure_future(adapters.load_all([("a", "/a"), ("b", "/b")]))
    await answer(cores, True, True)
    await answer(cores, ValueError("broken"), ValueError("broken"))
    await answer(cores, True, True)
    with pytest.raises(AdapterError, match="--lora-modules b=/b: broken"):
        await loading


@pytest.mark.usefixtures("cores")
async def test_requests_with_one_adapter_go_to_one_core(client: EngineClient) -> None:
    """Prompts that are alike share nothing across adapters: each has its own core, while none is busier."""
    ranks: dict[int, list[int]] = {1: [], 2: []}
    for number in range(8):
        lora = LoRARequest("x", 1 + number % 2, "/x")
        prompt = [1] * 40
        request = EngineCoreRequest(f"{number}", prompt, None, SamplingParams(), None, 0.0, lora, None, None)
        ranks[lora.lora_int_id].append(client.add([request]).rank)
    assert {len(set(of_one)) for of_one in ranks.values()} == {1}
    assert ranks[1] != ranks[2]


async def test_cores_of_a_newer_vllm_get_its_layout(engines: Engines, client: EngineClient) -> None:
    """Which has no fourth field."""
    ready = msgspec.structs.replace(introduction(READY, WireVersion.V0_33, 0, None), max_num_seqs=1)
    ready = msgspec.structs.replace(ready, max_num_batched_tokens=1)
    async with FakeCore(ready, 0) as first, FakeCore(ready, 1) as second:
        for core in (first, second):
            core.connect(engines.addresses)
        async with asyncio.timeout(10):
            await engines.ready
        loading = asyncio.ensure_future(Adapters(client, "base").load("a", "/a"))
        for core in (first, second):
            call = await core.receive_call()
            assert call.args == [["a", 1, "/a", None, False, False]]
            core.answer(call, True)
        await loading
