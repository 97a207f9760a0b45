"""What a core refuses is the caller's to correct."""

import logging

from core.wire.messages import REFUSED
from core.wire.sampling_params import Violation
from service.errors import InvalidRequest

logger = logging.getLogger(__name__)


def raise_if_refused(request_id: str, cause: int | str | None) -> None:
    """Raises InvalidRequest if ``cause``, the stop_reason of a request that ended as ERROR, is a refusal."""
    if isinstance(cause, str) and cause.startswith(REFUSED):
        logger.warning("request %s: the engine %s", request_id, cause)
        violation = Violation("request", f"the engine refused it: {cause.removeprefix(REFUSED)}")
        raise InvalidRequest([violation], reason="REFUSED_BY_ENGINE")
