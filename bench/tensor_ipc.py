"""Where it pays to hand tensors over beside the messages: ``python -m bench.tensor_ipc``.

One process encodes requests with prompt embeddings and sends them over ipc, another decodes them and answers; with the
tensor in a frame of the message, and with it handed over.
"""

import os
import statistics
import sys
import tempfile
import time

import numpy as np
import zmq

from core.wire.codec import Decoder, Encoder
from core.wire.messages import EngineCoreRequest
from core.wire.sampling_params import SamplingParams
from core.wire.tensor import Tensor
from core.wire.tensor_ipc import TensorReceiver, TensorSender, tensor_channel

HIDDEN_SIZE = 1024
NUM_TOKENS = (16, 64, 256, 1024, 2048, 4096)
REPEATS = 40


def main() -> None:
    """One line for each size: how long a round trip takes, and how much processor time it costs, either way."""
    print(f"{'MiB':>8} {'frame ms':>10} {'handed ms':>10} {'sender ms':>20} {'frame cpu':>10} {'handed cpu':>10}")
    for num_tokens in NUM_TOKENS:
        rows = Tensor(np.random.default_rng(0).random((num_tokens, HIDDEN_SIZE), np.float32))
        frame, handed = (_measure(rows, by_handle) for by_handle in (False, True))
        size = rows.array.nbytes / 2**20
        sender = f"{frame[1]:.2f} / {handed[1]:.2f}"
        print(f"{size:8.2f} {frame[0]:10.2f} {handed[0]:10.2f} {sender:>20} {frame[2]:10.2f} {handed[2]:10.2f}")


def _measure(rows: Tensor, by_handle: bool) -> tuple[float, float, float]:
    """Medians of round trip and time on the sending thread, and the mean processor time of both processes; in ms."""
    sender_end, receiver_end = tensor_channel()
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/requests"
        child = os.fork()
        if not child:
            _answer(address, TensorReceiver(receiver_end))
        receiver_end.close()
        encoder = Encoder(TensorSender(sender_end, threshold_bytes=1) if by_handle else None)
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.bind(address)
            socket.rcvtimeo = 10_000
            socket.recv()  # connected
            start_cpu = time.process_time()
            times = [_send(socket, encoder, rows) for _ in range(REPEATS)]
            own_cpu = time.process_time() - start_cpu
            socket.send(b"")
        _, _, used = os.wait4(child, 0)
        sender_end.close()
    cpu = (own_cpu + used.ru_utime + used.ru_stime) / REPEATS
    sending, whole = zip(*times, strict=True)
    return statistics.median(whole) * 1e3, statistics.median(sending) * 1e3, cpu * 1e3


def _send(socket: zmq.Socket[bytes], encoder: Encoder, rows: Tensor) -> tuple[float, float]:
    params = SamplingParams()
    request = EngineCoreRequest("r", None, None, params, None, 0.0, None, None, None, prompt_embeds=rows)
    start = time.perf_counter()
    socket.send_multipart(encoder.encode(request), zmq.NOBLOCK)
    sent = time.perf_counter()
    socket.recv()
    return sent - start, time.perf_counter() - start


def _answer(address: str, tensors: TensorReceiver) -> None:
    """The child: read each tensor once, as the check for NaN does."""
    decoder = Decoder(EngineCoreRequest, tensors=tensors)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(address)
        socket.send(b"connected")
        while len(frames := socket.recv_multipart()) > 1 or frames[0]:
            embeds = decoder.decode(frames).prompt_embeds
            assert embeds is not None
            np.isfinite(embeds.array).all()
            socket.send(b"ok")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
