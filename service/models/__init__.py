"""Models: their names, where they come from, and the files a model folder needs."""

from service.models.catalog import KNOWN_MODELS, KnownModel
from service.models.errors import ModelError
from service.models.progress import Progress, Report
from service.models.resolve import ModelFiles, cache_folder, resolve_model

__all__ = [
    "KNOWN_MODELS",
    "KnownModel",
    "ModelError",
    "ModelFiles",
    "Progress",
    "Report",
    "cache_folder",
    "resolve_model",
]
