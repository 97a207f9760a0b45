"""What differs between the versions of the wire, in both directions."""

from typing import Any

import msgspec
import numpy as np
import pytest

from core.wire.codec import Decoder, Encoder, WireError
from core.wire.messages import (
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineReadyResponse,
    EventType,
    FinishReason,
    LogprobsLists,
    LoRARequest,
    PrefillStats,
    UtilityOutput,
)
from core.wire.stats import SchedulerStats, SpecDecodingStats
from core.wire.version import (
    ResultByVersion,
    WireVersion,
    decoder_of_output,
    decoder_of_outputs,
    introduction,
    shaped_lora,
    shaped_outputs,
    shaped_request,
    version_of_core,
    version_of_request,
)
from tests.core.front_end import make_request
from tests.core.wire.recorded import recording

V0_25, V0_33 = WireVersion
READY = EngineReadyResponse(
    max_model_len=64, num_gpu_blocks=9, block_size=4, dtype="float32", vllm_version="x", max_num_seqs=8
)
LORA = LoRARequest("name", 7, "/path", "base", {"a": 1}, True, False)


def full_message() -> EngineCoreOutputs:
    """Outputs with something in every field that this core fills."""
    logprobs = LogprobsLists(np.ones((1, 2), np.int32), np.ones((1, 2), np.float32), np.ones(1, np.int64))
    events = [EngineCoreEvent(EventType.QUEUED, 1.5)]
    first = EngineCoreOutput(
        "a", [1], logprobs, events=events, trace_headers={"traceparent": "x"}, prefill_stats=PrefillStats(5, 5)
    )
    last = EngineCoreOutput("b", [2], finish_reason=FinishReason.STOP, stop_reason=2, num_nans_in_logits=3)
    stats = SchedulerStats(num_running_reqs=1, spec_decoding_stats=SpecDecodingStats(3, 1, 3, 2, [1, 1, 0], [1, 1, 1]))
    return EngineCoreOutputs(3, [first, last], stats, 2.5, finished_requests=["b"])


def encoded(message: EngineCoreOutputs, version: WireVersion | None) -> bytes:
    (document,) = Encoder().encode(shaped_outputs(message, version))
    return bytes(document)


def plain(message: object) -> Any:
    """In msgpack's own types, as this project lays it out."""
    return msgspec.msgpack.decode(Encoder().encode(message)[0])


@pytest.mark.parametrize(
    ("name", "version"),
    [("py_add_chat_stream", V0_25), ("rs_add_chat", V0_25), ("rs33_add", V0_33), ("own_add_short", None)],
)
def test_a_request_tells_the_version(name: str, version: WireVersion | None) -> None:
    """20 elements, as genuine front ends of 0.25 send them, 22 of 0.33; hardly any other number tells anything."""
    assert version_of_request(recording(name).frames[0]) is version
    assert version_of_request(b"") is None


def test_a_request_of_between_the_versions() -> None:
    """With a session and no hints: who sends that reads outputs as 0.33 has them."""
    document = Encoder().encode([None] * 21)[0]
    assert version_of_request(document) is V0_33


def test_our_requests_tell_it_too() -> None:
    """What the gateway sends has all the elements of the version it speaks."""
    request = make_request("a")
    assert [version_of_request(Encoder().encode(shaped_request(request, v))[0]) for v in WireVersion] == [V0_25, V0_33]


@pytest.mark.parametrize("version", [None, *WireVersion])
def test_outputs_are_read_as_they_were(version: WireVersion | None) -> None:
    """Outputs for 0.25 decode as such and those for 0.33 as such; those for nobody in particular as both."""
    message = full_message()
    for reader in WireVersion if version is None else (version,):
        read = decoder_of_outputs(reader)([encoded(message, version)])
        expected = full_message()
        if version is None:
            for output in expected.outputs:
                output.trace_headers = output.prefill_stats = None
                output.num_nans_in_logits = 0
        assert plain(read) == plain(expected)


def test_the_layout_of_0_25() -> None:
    """Messages for 0.25 are the genuine ones, byte for byte."""
    frames = recording("core_out_first").frames
    message = decoder_of_outputs(V0_25)(frames)
    assert encoded(message, V0_25) == frames[0]


def test_the_layout_of_0_33() -> None:
    """One element is inserted at 9, what followed comes one later; the statistics have their new keys."""
    _, (first, last), stats, *_ = msgspec.msgpack.decode(encoded(full_message(), V0_33))
    assert first[8:11] == [None, None, {"traceparent": "x"}]
    assert first[11]["num_cache_creation_tokens"] == 0
    assert (first[11]["num_prompt_tokens"], last[13], len(last)) == (5, 3, 14)
    assert stats["prefix_cache_stats"]["hits_by_source"] == stats["num_kv_fetch_reqs_by_stage"] == {}
    assert stats["iteration_details"] is stats["ec_connector_stats"] is None
    assert stats["num_running_reqs"] == 1


@pytest.mark.parametrize("version", [None, *WireVersion])
def test_the_statistics_of_drafts_have_vllms_keys(version: WireVersion | None) -> None:
    """The five of which front ends of 0.25 miss none, and one of later releases."""
    stats = msgspec.msgpack.decode(encoded(full_message(), version))[2]["spec_decoding_stats"]
    counts = {"num_spec_tokens": 3, "num_drafts": 1, "num_draft_tokens": 3, "num_accepted_tokens": 2}
    by_position = {"num_accepted_tokens_per_pos": [1, 1, 0], "num_draft_tokens_per_pos": [1, 1, 1]}
    assert stats == counts | by_position


def test_the_layout_of_both() -> None:
    """For a front end of unknown version an output has 9 elements, and a message 8: 0.25 would refuse more."""
    message = msgspec.msgpack.decode(encoded(full_message(), None))
    assert (len(message), [len(output) for output in message[1]]) == (8, [9, 9])


@pytest.mark.parametrize(("version", "result"), [(None, None), (V0_25, None), (V0_33, True)])
def test_results_that_differ(version: WireVersion | None, result: bool | None) -> None:
    """Each front end gets the result of a utility that its own version expects."""
    answer = UtilityOutput(7, result=(None, ResultByVersion(in_0_25=None, in_0_33=True)))
    message = msgspec.msgpack.decode(encoded(EngineCoreOutputs(utility_output=answer), version))
    assert message[4] == [7, None, [None, result]]


def test_adapters_as_arguments_of_calls() -> None:
    """One element fewer for 0.33; whoever it is, it is the same adapter."""
    for version, length in ((V0_25, 7), (None, 7), (V0_33, 6)):
        fields = msgspec.msgpack.decode(msgspec.msgpack.encode(shaped_lora(LORA, version)))
        assert len(fields) == length
        decoded = msgspec.convert(fields, LoRARequest)
        assert (decoded.lora_name, decoded.lora_int_id, decoded.load_inplace) == ("name", 7, True)


def test_the_tail_of_0_33() -> None:
    """What only 0.33 has is not looked at, but for the text of an error."""
    error = {"code": 500, "message": "out of memory", "retryable": True}
    output = ["a", [], None, None, None, 3, None, None, None, {"x": 1}, None, None, None, 0, [], {}, 1, None, error]
    document = msgspec.msgpack.encode([0, [output], None, 1.0, None, None, None, None, "v7"])
    (decoded,) = decoder_of_outputs(V0_33)([document]).outputs
    assert (decoded.finish_reason, decoded.stop_reason) == (FinishReason.ERROR, "out of memory")


@pytest.mark.parametrize("version", WireVersion)
def test_single_outputs(version: WireVersion) -> None:
    """A single output decodes too, and what is wrong with one is named as in 0.25."""
    (document, _) = plain(shaped_outputs(full_message(), version))[1]
    output = decoder_of_output(version)([msgspec.msgpack.encode(document)])
    assert (output.trace_headers, output.num_nans_in_logits) == ({"traceparent": "x"}, 0)
    with pytest.raises(WireError, match=r"^EngineCoreOutput\.new_token_ids: "):
        decoder_of_output(version)([msgspec.msgpack.encode(["a", 7])])


@pytest.mark.parametrize(
    ("version", "layout"),
    [(V0_25, ["name", 7, "/path", "base", {"a": 1}, True, False]), (V0_33, ["name", 7, "/path", "base", True, False])],
)
def test_lora_requests(version: WireVersion, layout: list[Any]) -> None:
    """An adapter is written as each version has it, and read whichever it is."""
    request = make_request("a")
    request.lora_request = LORA
    document = Encoder().encode(shaped_request(request, version))[0]
    assert msgspec.msgpack.decode(document)[6] == layout
    lora = Decoder(EngineCoreRequest).decode([document]).lora_request
    assert lora is not None
    assert (lora.load_inplace, lora.is_3d_lora_weight) == (True, False)
    assert lora.tensorizer_config_dict == ({"a": 1} if version is V0_25 else None)


@pytest.mark.parametrize("version", [None, *WireVersion])
def test_one_introduction_for_both(version: WireVersion | None) -> None:
    """A core says all that 0.33 requires, whoever listens, and as what it wants to be taken."""
    said = plain(introduction(READY, version, rank=2, dp_stats_address="ipc:///stats"))
    assert said | {"instance_id": ""} == plain(READY) | {
        "vllm_version": "0.33.0" if version is V0_33 else "0.25.1",
        "dp_stats_address": "ipc:///stats",
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "data_parallel_rank": 2,
        "max_num_seqs": 8,
        "instance_id": "",
        "supports_lora": False,
        "max_loras": 0,
        "enable_sleep_mode": False,
    }
    assert len(said["instance_id"]) == 32


def test_a_core_tells_its_version() -> None:
    """0.25.1 says so, our own core as well; any other that says what 0.33 requires speaks as 0.33 does."""
    genuine = Decoder(EngineReadyResponse).decode(recording("core_ready_response").frames)
    ours = [introduction(READY, version, 0, None) for version in (None, *WireVersion)]
    newer = msgspec.structs.replace(ours[0], vllm_version="0.34.1rc1.dev7")
    odd = msgspec.structs.replace(genuine, vllm_version="dev")
    assert [version_of_core(said) for said in (genuine, odd, *ours, newer)] == [V0_25] * 4 + [V0_33] * 2
