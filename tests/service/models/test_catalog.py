"""service.models.catalog: everything is pinned."""

import re

from service.models.catalog import KNOWN_MODELS, KnownModel


def test_every_model_is_pinned_to_versions_and_checksums() -> None:
    """Of the wheels and of what comes out of them."""
    assert [*KNOWN_MODELS] == ["smollm2-135m", "gemma3-270m", "all-minilm-l6-v2"]
    for name, model in KNOWN_MODELS.items():
        assert model.name == name
        for sha256 in (model.sha256, *(wheel.sha256 for wheel in model.wheels)):
            assert re.fullmatch("[0-9a-f]{64}", sha256)
        for wheel in model.wheels:
            assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+", wheel.requirement)
        if isinstance(model, KnownModel):
            assert model.file_name.endswith(".gguf")
            assert 0.5 * model.size_bytes < model.download_bytes < model.size_bytes
