"""KV events: a listener knows at every moment what the prefix cache holds."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config import CacheConfig, LoraConfig, SchedulerConfig
from core.engine import EngineCore
from core.executor.fake import FAKE_MODEL, FakeExecutor, fake_embed
from core.wire.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent, KVEventBatch
from core.wire.messages import LoRARequest
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from tests.core.builders import add, make_engine, make_message, run_to_end, step
from tests.core.kv_subscriber import KnownBlocks

PROMPT = list(range(100, 113))


class Listener:
    """Where an engine's events go: each call of ``publish`` is one batch."""

    def __init__(self) -> None:
        self.batches: list[list[KVEvent]] = []
        self.known = KnownBlocks()
        self.is_closed = False

    def publish(self, events: list[KVEvent]) -> None:
        self.batches.append(events)
        self.known.learn(events)

    def close(self) -> None:
        self.is_closed = True

    def take(self) -> list[list[KVEvent]]:
        batches, self.batches = self.batches, []
        return batches


def hashes_in(engine: EngineCore, group_idx: int = 0) -> set[bytes]:
    return engine.scheduler.kv_cache.cached_hashes(group_idx)


def test_the_form_on_the_wire_is_that_of_vllm() -> None:
    """A batch is an array, an event a map with its type; what has a default and has its value is left out."""
    events: list[KVEvent] = [
        BlockStored([b"b"], b"a", [1, 2], 2, None, "GPU", None, [None], 0, "full_attention"),
        BlockRemoved([b"a"], "GPU", 0),
        AllBlocksCleared(),
    ]
    stored = {
        "type": "BlockStored",
        "block_hashes": [b"b"],
        "parent_block_hash": b"a",
        "token_ids": [1, 2],
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    removed = {"type": "BlockRemoved", "block_hashes": [b"a"], "medium": "GPU", "group_idx": 0}
    document = msgspec.msgpack.decode(msgspec.msgpack.encode(KVEventBatch(1.5, events, 3)))
    assert document == [1.5, [stored, removed, {"type": "AllBlocksCleared"}], 3]


def test_one_batch_for_each_step_that_changed_something() -> None:
    """The prompt's full blocks as one event, then each block as it fills, after its parent."""
    listener = Listener()
    engine = make_engine(kv_events=listener)
    add(engine, "a", PROMPT, max_tokens=8)
    step(engine)
    [[first]] = listener.take()
    assert isinstance(first, BlockStored)
    assert (first.parent_block_hash, first.token_ids, first.block_size) == (None, PROMPT[:12], 4)
    assert len(first.block_hashes) == 3
    assert first.extra_keys == [None, None, None]
    run_to_end(engine)
    [[second], [third]] = listener.take()
    assert isinstance(second, BlockStored)
    assert isinstance(third, BlockStored)
    assert second.parent_block_hash == first.block_hashes[-1]
    assert third.parent_block_hash == second.block_hashes[-1]
    assert second.token_ids[:1] == PROMPT[12:]


def test_what_is_found_is_not_stored_again() -> None:
    """A prompt that goes on where another one ended tells of its new blocks only."""
    listener = Listener()
    engine = make_engine(kv_events=listener)
    add(engine, "a", PROMPT[:8], max_tokens=1)
    run_to_end(engine)
    [[first]] = listener.take()
    add(engine, "b", PROMPT, max_tokens=1)
    run_to_end(engine)
    [[second]] = listener.take()
    assert isinstance(first, BlockStored)
    assert isinstance(second, BlockStored)
    assert (second.parent_block_hash, second.token_ids) == (first.block_hashes[-1], PROMPT[8:12])


def test_eviction_and_reset() -> None:
    """Blocks that are used anew are removed, together, before what comes into them is stored; a reset clears all."""
    listener = Listener()
    engine = make_engine(num_blocks=5, max_model_len=16, kv_events=listener)
    add(engine, "a", PROMPT, max_tokens=1)
    run_to_end(engine)
    [[stored]] = listener.take()
    add(engine, "b", [7] * 13, max_tokens=1)
    run_to_end(engine)
    [[removed, stored_next]] = listener.take()
    assert isinstance(stored, BlockStored)
    assert isinstance(removed, BlockRemoved)
    assert isinstance(stored_next, BlockStored)
    assert set(removed.block_hashes) == set(stored.block_hashes)
    assert engine.call_utility("reset_prefix_cache", [])
    assert listener.take() == [[AllBlocksCleared()]]
    assert hashes_in(engine) == set()


def test_extra_keys() -> None:
    """The salt stands with the first block, whose hash alone it changes directly."""
    listener = Listener()
    engine = make_engine(kv_events=listener)
    message = make_message("a", PROMPT, SamplingParams(max_tokens=1), cache_salt="salt")
    engine.add_request(engine.preprocess_add_request(message))
    run_to_end(engine)
    [[event]] = listener.take()
    assert isinstance(event, BlockStored)
    assert event.extra_keys == [("salt",), None, None]


def test_blocks_of_embeddings_are_told_apart() -> None:
    """By a digest of their rows, since their tokens are placeholders; the blocks after them hold tokens alone."""
    listener = Listener()
    engine = make_engine(kv_events=listener)
    for request_id, first_token in (("a", 1), ("b", 2)):
        rows = Tensor(fake_embed([first_token, *PROMPT[1:]]))
        message = make_message(request_id, params=SamplingParams(max_tokens=1), prompt_token_ids=None)
        message.prompt_embeds = rows
        engine.add_request(engine.preprocess_add_request(message))
        run_to_end(engine)
    [[first], [second]] = listener.take()
    assert isinstance(first, BlockStored)
    assert isinstance(second, BlockStored)
    assert first.token_ids == second.token_ids
    assert first.extra_keys is not None
    assert second.extra_keys is not None
    assert first.extra_keys[0] != second.extra_keys[0]
    assert first.extra_keys[1:] == second.extra_keys[1:]


def test_cores_of_one_seed_tell_of_the_same_hashes() -> None:
    """As far as they have the same tokens: a router may ask for a prefix wherever it is."""
    told = []
    for hash_seed in ("0", "0", "1"):
        listener = Listener()
        config = CacheConfig(4, 64 * 32, hash_seed=hash_seed)
        engine = EngineCore(FakeExecutor(), config, SchedulerConfig(8, 64), 64, kv_events=listener)
        add(engine, "a", PROMPT, max_tokens=1)
        run_to_end(engine)
        told.append(hashes_in(engine))
    assert told[0] == told[1]
    assert not told[0] & told[2]


def test_without_a_listener_nothing_is_collected() -> None:
    """The default costs a comparison; with one, its end comes with the engine's."""
    engine = make_engine()
    add(engine, "a", PROMPT, max_tokens=1)
    run_to_end(engine)
    engine.shutdown()
    listener = Listener()
    make_engine(kv_events=listener).shutdown()
    assert listener.is_closed


REQUESTS = st.tuples(st.integers(0, 3), st.integers(1, 30), st.integers(1, 12), st.sampled_from([None, "salt"]))
ACTIONS = st.one_of(
    REQUESTS,
    st.sampled_from(["step", "step", "step", "abort", "reset", "reset hard", "sleep", "wake"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTIONS, max_size=40), st.sampled_from([(None,), (None, 6)]))
def test_the_listener_knows_what_the_pool_knows(actions: list[Any], windows: tuple[int | None, ...]) -> None:
    """After each of many steps, evictions, preemptions, aborts, resets and sleeps: the very same set of blocks."""
    listener = Listener()
    num_blocks, executor = 1 + 10 * len(windows), make_executor(windows)
    engine = make_engine(num_blocks, max_model_len=40, max_num_batched_tokens=16, executor=executor, kv_events=listener)
    for index, action in enumerate(actions):
        perform(engine, action, str(index))
        for group_idx in range(len(windows)):
            assert set(listener.known.of_group(group_idx)) == hashes_in(engine, group_idx)
    engine.call_utility("wake_up", [None])
    run_to_end(engine)
    assert set(listener.known.blocks) == hashes_in(engine)
    assert all(len(token_ids) == 4 for token_ids in listener.known.blocks.values())


def make_executor(windows: tuple[int | None, ...]) -> FakeExecutor:
    return FakeExecutor(msgspec.structs.replace(FAKE_MODEL, kv_windows=windows))


def test_each_group_tells_of_its_own_blocks() -> None:
    """The same hashes, with the group's number, its kind and its window; the utility has the same to say of it."""
    listener = Listener()
    engine = make_engine(executor=make_executor((None, 6)), kv_events=listener)
    add(engine, "a", PROMPT, max_tokens=1)
    run_to_end(engine)
    [[full, window]] = listener.take()
    assert isinstance(full, BlockStored)
    assert isinstance(window, BlockStored)
    assert full.block_hashes == window.block_hashes
    told = [(e.group_idx, e.kv_cache_spec_kind, e.block_size, e.kv_cache_spec_sliding_window) for e in (full, window)]
    assert told == [(0, "full_attention", 4, None), (1, "sliding_window", 4, 6)]
    groups = engine.call_utility("get_kv_cache_group_metadata", [])
    assert [
        tuple(group[key] for key in ("group_idx", "kind", "block_size", "sliding_window")) for group in groups
    ] == told


def perform(engine: EngineCore, action: Any, request_id: str) -> None:
    match action:
        case "step":
            if engine.has_requests():
                step(engine)
        case "abort":
            engine.abort_requests(list(engine.scheduler.requests)[:1])
        case "reset" | "reset hard":
            engine.call_utility("reset_prefix_cache", [action == "reset hard"])
        case "sleep":
            engine.call_utility("sleep", [1, "keep"])
        case "wake":
            engine.call_utility("wake_up", [None])
        case (family, length, max_tokens, salt):
            prompt = [family * 100 + position for position in range(length)]
            message = make_message(request_id, prompt, SamplingParams(max_tokens=max_tokens), cache_salt=salt)
            engine.add_request(engine.preprocess_add_request(message))


def test_blocks_of_an_adapter_say_so() -> None:
    """Its id and its name, which is among the extra keys of every block, before the salt of the first."""
    listener = Listener()
    engine = make_engine(kv_events=listener, lora=LoraConfig())
    params = SamplingParams(max_tokens=1)
    lora = LoRARequest("poet", 7, "/poet")
    message = make_message("a", PROMPT, params, lora_request=lora, cache_salt="s")
    engine.add_request(engine.preprocess_add_request(message))
    run_to_end(engine)
    [[stored]] = listener.take()
    assert isinstance(stored, BlockStored)
    assert (stored.lora_id, stored.lora_name) == (7, "poet")
    assert stored.extra_keys is not None
    assert stored.extra_keys[:2] == [("poet", "s"), ("poet",)]
