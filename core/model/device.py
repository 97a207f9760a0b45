"""Where a model runs, and the memory that is left there."""

import torch

from core.model.host import available_memory_bytes, trim_heap


def find_device(name: str) -> torch.device:
    """``cpu``, ``cuda`` or ``cuda:N``. Raises ValueError for anything else, and for a GPU that torch does not see."""
    num_gpus = torch.cuda.device_count()
    allowed = ["cpu", *(["cuda"] if num_gpus else []), *(f"cuda:{index}" for index in range(num_gpus))]
    if name not in allowed:
        no_gpu = "" if num_gpus else f" (torch {torch.__version__} sees no GPU)"
        raise ValueError(f"device must be one of {', '.join(allowed)}{no_gpu}, got {name!r}")
    # cuDNN's attention makes a plan of up to 0.1 s for every shape it sees first, and contexts grow with every step.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device(name)


def free_memory_bytes(device: torch.device) -> int:
    """What can still be allocated: on the host within the limits of a container."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    return available_memory_bytes()


def give_back_memory(device: torch.device) -> None:
    """Let others have what was freed on ``device``: on a GPU torch would keep it for itself, on the host libc would."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    else:
        trim_heap()
