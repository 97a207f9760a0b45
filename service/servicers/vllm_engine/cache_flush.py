"""FlushCache: the prefix cache is emptied, if need be once nothing uses it."""

import asyncio
import math

from smg_grpc_proto.generated import common_pb2 as pb

from core.wire.sampling_params import Violation
from service.cores.engine_control import EngineControl
from service.errors import FailedPrecondition, Internal, InvalidRequest
from service.servicers.vllm_engine.statuses import TimedOut

_ONE_ATTEMPT_TIMEOUT_S = 30.0
_RETRY_INTERVAL_S = 0.1
_REFUSED = "KV prefix cache reset refused; requests may be in flight"


async def flush_cache(engine: EngineControl, timeout_s: float) -> pb.FlushCacheResponse:
    """Try once, or with ``timeout_s`` above 0 until every core has done it.

    Raises InvalidRequest for a time that is none, TimedOut, Internal with the core's message in the log, and
    Unavailable without a core.
    """
    if not (math.isfinite(timeout_s) and timeout_s >= 0):
        raise InvalidRequest([Violation("timeout_s", f"must be finite and at least 0, got {timeout_s:g}")])
    try:
        async with asyncio.timeout(timeout_s or _ONE_ATTEMPT_TIMEOUT_S):
            return await _flush(engine, is_patient=timeout_s > 0)
    except TimeoutError as error:
        raise TimedOut("the prefix cache was not flushed in time; it may be yet", reason="FLUSH_TIMED_OUT") from error
    except FailedPrecondition as error:
        raise Internal("the engine failed to flush its cache", reason="ENGINE_ERROR", cause=error.message) from error


async def _flush(engine: EngineControl, is_patient: bool) -> pb.FlushCacheResponse:
    while not await engine.call("reset_prefix_cache", False, False):
        if not is_patient:
            return pb.FlushCacheResponse(success=False, message=_REFUSED)
        await asyncio.sleep(_RETRY_INTERVAL_S)
    return pb.FlushCacheResponse(success=True, message="KV prefix cache flushed")
