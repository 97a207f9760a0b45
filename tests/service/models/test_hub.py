"""service.models.hub: hub ids, and a clear word when there is no hub."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.models.hub import is_hub_id


@pytest.mark.parametrize("model", ["HuggingFaceTB/SmolLM2-135M", "a/b", "org-1/name_2.v3"])
def test_hub_ids(model: str) -> None:
    """ORG/NAME."""
    assert is_hub_id(model)


@pytest.mark.parametrize("model", ["a", "a/b/c", "./a", "/a", "../a", "a/", "~/a", "a b/c", ""])
def test_other_names_are_none(model: str) -> None:
    """Paths above all."""
    assert not is_hub_id(model)


def test_hub_out_of_reach_is_told(tmp_path: Path) -> None:
    """Offline, with nothing cached: one typed error that names the model and the hub."""
    script = (
        "from service.models import ModelError, resolve_model\n"
        "try: resolve_model('no-such-org/no-such-model', lambda progress: print(progress.what))\n"
        "except ModelError as error: print('told:', error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    output = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    first, second, *_ = output.stdout.splitlines()
    assert first == "fetching no-such-org/no-such-model from the Hugging Face hub"
    assert second.startswith("told: could not fetch no-such-org/no-such-model from the Hugging Face hub: ")


def test_cached_model_is_found_offline(tmp_path: Path) -> None:
    """A snapshot with safetensors in the hub's cache is its folder; one without says what to do."""
    for name, weights in (("with", "model.safetensors"), ("without", "model.bin")):
        repository = tmp_path / "hub" / f"models--org--{name}"
        snapshot = repository / "snapshots" / ("0" * 40)
        snapshot.mkdir(parents=True)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("0" * 40)
        (snapshot / weights).touch()
        (snapshot / "config.json").write_text("{}")
    script = (
        "from service.models import ModelError, resolve_model\n"
        "print(resolve_model('org/with', print).tokenizer_folder)\n"
        "try: resolve_model('org/without', print)\n"
        "except ModelError as error: print('told:', error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    output = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert str(tmp_path / "hub" / "models--org--with") in output.stdout
    assert "told: org/without on the Hugging Face hub has no safetensors" in output.stdout
