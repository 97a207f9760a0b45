"""Models of the Hugging Face hub, in the hub's own cache, where other programs find them too."""

import re
from pathlib import Path

from service.models.errors import ModelError
from service.models.progress import Progress, Report

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PATTERNS = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
_SAME_AGAIN = ["consolidated*.safetensors", "original/*"]
"""The same weights in the layout of whoever trained them: as much again to fetch, for nothing."""


def is_hub_id(model: str) -> bool:
    """Does ``model`` have the form ORG/NAME?"""
    return _HUB_ID.fullmatch(model) is not None


def fetch_from_hub(model: str, report: Report) -> Path:
    """The folder of a hub model with safetensors weights, downloaded as far as the hub's cache lacks it.

    Raises ModelError if there is no such model, no access to it, or no network.
    """
    from huggingface_hub import snapshot_download  # slow to import, and rarely needed

    report(Progress(f"fetching {model} from the Hugging Face hub"))
    try:
        folder = Path(snapshot_download(model, allow_patterns=_PATTERNS, ignore_patterns=_SAME_AGAIN))
    except Exception as error:  # the hub's, the proxy's, the disk's: all end here, and all say why
        raise ModelError(f"could not fetch {model} from the Hugging Face hub: {error}") from error
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"{model} on the Hugging Face hub has no safetensors; download a GGUF file and give its path")
    return folder
