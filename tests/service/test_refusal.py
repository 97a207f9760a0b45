"""What a core refuses is told by the field that the client has set."""

import pytest

from core.wire.messages import REFUSED
from core.wire.sampling_params import Violation
from service.errors import InvalidRequest
from service.refusal import raise_if_refused


@pytest.mark.parametrize(
    ("cause", "violation"),
    [
        ("pooling_params.dimensions must be in [1, 384], got 385", ("dimensions", "must be in [1, 384], got 385")),
        ("lora_request a/adapter_config.json: r is missing", ("lora_name", "a/adapter_config.json: r is missing")),
        ("structured_outputs.json is nested too deeply", ("sampling_params.json_schema", "is nested too deeply")),
        ("no token is possible", ("request", "the engine refused it: no token is possible")),
    ],
)
def test_the_field_is_the_clients(cause: str, violation: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        raise_if_refused("r", REFUSED + cause)
    assert [*refused.value.violations] == [Violation(*violation)]


@pytest.mark.parametrize("cause", [None, 5, "a stop string", "3 NaN in its logits"])
def test_other_causes_are_none(cause: int | str | None) -> None:
    raise_if_refused("r", cause)


def test_what_the_caller_wrote_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The cause may hold a part of the schema or pattern: the log has the field alone, the caller all of it."""
    with pytest.raises(InvalidRequest, match="unclosed group: MARK"):
        raise_if_refused("r", f"{REFUSED}structured_outputs.regex unclosed group: MARK")
    assert "request r: the engine refused it: structured_outputs.regex is wrong" in caplog.text
    assert "MARK" not in caplog.text
