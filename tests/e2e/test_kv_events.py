"""Cores of a real model that publish, a server that follows them, a router that subscribes."""

import re
import signal

import grpc
import psutil
import pytest

from sluicegate.v1 import control_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate_client import Client
from tests.e2e.server import EXIT_TIMEOUT_S, serving

STORY = "Once upon a time there was a gate that let every stream through, one after the other, as fast as it could. "


def blocks_of(message: pb.SubscribeKvEventsResponse) -> list[bytes]:
    return [block_hash for event in message.events for block_hash in event.stored.block_hashes]


def test_a_router_follows_two_cores() -> None:
    """What each computes is told with its rank and tokens; who comes late gets it as a snapshot.

    When a core is killed, its subscribers are told to forget, and the one in its place begins anew.
    """
    flags = "--kv-events", "--data-parallel-size", "2", "--kv-cache-memory", "64MiB", "--block-size", "4"
    with serving(*flags) as server, Client(server.address) as client:
        with grpc.insecure_channel(server.admin_address) as channel:
            control = ControlServiceStub(channel)
            call = control.SubscribeKvEvents(pb.SubscribeKvEventsRequest(), timeout=60)
            call.initial_metadata()
            for rank in (1, 0):
                client.generate(STORY, max_tokens=1, data_parallel_rank=rank)
                message = next(call)
                assert (message.data_parallel_rank, message.sequence_number) == (rank, 0)
                stored = message.events[0].stored
                token_ids = client.tokenize(STORY)
                assert [*stored.token_ids] == token_ids[: len(token_ids) // 4 * 4]
                assert (stored.block_size, stored.parent_block_hash) == (4, b"")
                late = control.SubscribeKvEvents(pb.SubscribeKvEventsRequest(data_parallel_rank=rank), timeout=60)
                snapshot = next(late)
                assert snapshot.snapshot.num_blocks == len(token_ids) // 4
                assert blocks_of(snapshot) == [*stored.block_hashes]
                late.cancel()
            killed = re.findall(r"core started, pid ([0-9]+)", server.process.log)[1]
            psutil.Process(int(killed)).kill()
            with pytest.raises(grpc.RpcError) as lost:
                next(call)
            assert lost.value.code() is grpc.StatusCode.DATA_LOSS
            call = control.SubscribeKvEvents(pb.SubscribeKvEventsRequest(data_parallel_rank=1), timeout=60)
            call.initial_metadata()
            client.generate(STORY, max_tokens=1, data_parallel_rank=1)
            message = next(call)
            assert (message.data_parallel_rank, message.sequence_number) == (1, 0)
            assert blocks_of(message)
            call.cancel()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(EXIT_TIMEOUT_S) == 0
