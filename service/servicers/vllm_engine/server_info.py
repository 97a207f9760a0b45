"""What GetServerInfo says of the server."""

import time

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from service.gate import Backend
from service.servicers.vllm_engine.loads import max_running_requests

_FROM_FIRST_TOKEN = "first_token"
"""A core of ours has no reasoning parser whose word it would wait for."""
_SERVER_TYPE = "vllm-grpc"
"""What routers know the servers of this contract by."""


def server_info(backend: Backend, is_paused: bool, has_own_cores: bool) -> pb.GetServerInfoResponse:
    """Nothing of KV transfer, media or reasoning parsers: there is none, or the core does not tell of it.

    ``has_own_cores``: they are ours, so that it is known where they begin with a form of the output.
    """
    engines = backend.engine.engines.all
    return pb.GetServerInfoResponse(
        active_requests=backend.generator.num_requests,
        is_paused=is_paused,
        last_receive_timestamp=_last_heard_at(backend),
        uptime_seconds=time.time() - backend.start_time,
        server_type=_SERVER_TYPE,
        data_parallel_size=len(engines),
        kv_cache_dtype="auto",
        block_size=backend.engine_info.block_size,
        model_dtype=f"torch.{backend.engine_info.dtype.removeprefix('torch.')}",
        constrained_decoding_start=_FROM_FIRST_TOKEN if has_own_cores else "",
        max_num_seqs=min(max_running_requests(engine.response) for engine in engines),
    )


def _last_heard_at(backend: Backend) -> float:
    """When any core last said something, in seconds since the epoch; 0 before that."""
    heard_at = [engine.heard_at for engine in backend.engine.engines.all if engine.heard_at is not None]
    return time.time() - (time.monotonic() - max(heard_at)) if heard_at else 0.0
