"""The peers, ours first."""

from functools import partial

from bench.peers import library, llama_server, vllm
from bench.peers.environment import PeerEnvironment
from bench.peers.peer import Family, Peer
from bench.peers.sluicegate import OURS
from bench.workload import WORKLOADS, Workload

_LLAMA, _OPENVINO, _CTRANSLATE2, _TRANSFORMERS, _VLLM = map(
    PeerEnvironment, ("llama-server", "openvino", "ctranslate2", "transformers", "vllm")
)


def _num_slots(workload: Workload) -> str:
    """As many as can be busy at W4, where prefixes are looked for slot by slot; else 32."""
    return "16" if workload == WORKLOADS["W4"] else "32"


PEERS = {
    peer.name: peer
    for peer in (
        *OURS,
        Peer(
            _LLAMA.name,
            Family.QUANTIZED,
            "built with -march=native; -t 2 -tb 2 -np 32 (W4: 16) -c 65536; Q4_1 by rows of 8 bits; HTTP, token ids",
            partial(llama_server.start, program=_LLAMA.folder / "bin/llama-server"),
            _num_slots,
            needs=_LLAMA.complete,
        ),
        Peer(
            _OPENVINO.name,
            Family.QUANTIZED,
            "ContinuousBatchingPipeline on the GGUF, INFERENCE_NUM_THREADS 2, prefix caching; in process",
            partial(library.start, driver="openvino", home=_OPENVINO),
            needs=_OPENVINO.complete,
        ),
        Peer(
            _CTRANSLATE2.name,
            Family.QUANTIZED,
            "int8, 2 threads, static batch, shared prefix as static prompt; in process",
            partial(library.start, driver="ctranslate2", home=_CTRANSLATE2, converter="ctranslate2"),
            needs=_CTRANSLATE2.complete,
        ),
        Peer(
            _TRANSFORMERS.name,
            Family.FLOAT32,
            "generate, float32, sdpa, 2 threads, static batch; in process",
            partial(library.start, driver="transformers", home=_TRANSFORMERS, converter="dense"),
            needs=_TRANSFORMERS.complete,
        ),
        Peer(
            _VLLM.name,
            Family.FLOAT32,
            "float32, compiled, OMP_NUM_THREADS 2, libiomp5, nobind; its gRPC server, token ids",
            partial(vllm.start, home=_VLLM),
            needs=_VLLM.complete,
        ),
    )
}
