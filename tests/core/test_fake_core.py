"""What real requests of others meet in a core that is real but for its model."""

from pathlib import Path

import pytest

from core.executor.fake import fake_next_token
from core.wire.messages import FinishReason
from tests.core.fake_core import MODEL
from tests.core.front_end import CoreProcess, FrontEnd
from tests.core.wire.recorded import recording, recordings

STRUCTURED = [
    found.name
    for found in recordings()
    if "_add" in found.name and isinstance(found.decoded[0][3], dict) and found.decoded[0][3].get("structured_outputs")
]


@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_output_is_refused(tmp_path: Path, name: str) -> None:
    """A genuine front end's request for it ends at once with an error that says so; the one beside it is exact."""
    found = recording(name)
    request_id = found.decoded[0][0]
    with FrontEnd(tmp_path) as front_end, CoreProcess(front_end.address, module="tests.core.fake_core"):
        front_end.accept()
        front_end.add("neighbour", max_tokens=50)
        front_end.send(found.head[-1], *found.frames)
        received = front_end.receive_until_finished("neighbour", request_id)
        (refusal,) = received[request_id]
        assert refusal.finish_reason is FinishReason.ERROR
        assert "structured_outputs is not supported: this engine has no tokenizer" in str(refusal.stop_reason)
        tokens = [1, 2, 3, 4, 5]
        for output in received["neighbour"]:
            assert output.new_token_ids == [fake_next_token(tokens, MODEL.vocab_size)]
            tokens += output.new_token_ids
        assert len(tokens) == 55
