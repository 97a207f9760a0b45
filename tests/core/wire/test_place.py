"""Positions in a message turned into names."""

import pytest

from core.wire.messages import EngineCoreOutputs, EngineCoreRequest
from core.wire.place import name_place


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("no place", "EngineCoreOutputs: no place"),
        ("bad - at `$`", "EngineCoreOutputs: bad"),
        ("bad - at `$[4].x`", "EngineCoreOutputs.utility_output.x: bad"),
        ("bad - at `$[1][...][2][0]`", "EngineCoreOutputs.outputs[...].new_logprobs.token_ids: bad"),
        ("bad - at `$[1][7][5]`", "EngineCoreOutputs.outputs[7].finish_reason: bad"),
        ("bad - at `key` in `$[2].x[...]`", "EngineCoreOutputs.scheduler_stats.x[...], a key: bad"),
        ("got ' - at `$[9]`' - at `$[0]`", "EngineCoreOutputs.engine_index: got ' - at `$[9]`'"),
    ],
)
def test_positions_become_names(error: str, named: str) -> None:
    """Each step is named by the type it leads through; steps through unknown types stay as they are."""
    assert name_place("EngineCoreOutputs", EngineCoreOutputs, error) == named


def test_unknown_fields_keep_their_key() -> None:
    """A path into free-form content keeps its keys and positions."""
    named = name_place("ADD", EngineCoreRequest, "bad - at `$[3].extra_args[...][2].x`")
    assert named == "ADD.sampling_params.extra_args[...][2].x: bad"
