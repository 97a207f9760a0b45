"""What a core refuses is the caller's to correct."""

import logging

from core.wire.messages import REFUSED, without_words
from core.wire.sampling_params import Violation
from service.errors import InvalidRequest
from service.structured_output import field_of

logger = logging.getLogger(__name__)

_FIELDS = {"pooling_params.dimensions": "dimensions", "lora_request": "lora_name"}
"""Of the core's, as a client calls them; those of forms apart."""


def raise_if_refused(request_id: str, cause: object) -> None:
    """Raises InvalidRequest if ``cause``, the stop_reason of a request that ended as ERROR, is a refusal."""
    if isinstance(cause, str) and cause.startswith(REFUSED):
        wrong = cause.removeprefix(REFUSED)
        extra = {"request_id": request_id}
        logger.warning("request %s: the engine refused it: %s", request_id, without_words(wrong), extra=extra)
        raise InvalidRequest([_violation(wrong)], reason="REFUSED_BY_ENGINE")


def _violation(cause: str) -> Violation:
    """Of the field that the core has shown to be wrong, or of the request."""
    core_field, _, description = cause.partition(" ")
    field = _FIELDS.get(core_field) or field_of(core_field)
    return Violation("request", f"the engine refused it: {cause}") if field is None else Violation(field, description)
