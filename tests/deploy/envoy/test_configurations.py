import subprocess
from pathlib import Path

import pytest

from tests.deploy.envoy.proxy import CONFIGS, ROOT, envoy_path

PAGE = "deploy/web/dist/index.html"


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_envoy_takes_it_as_it_is(config: Path, tmp_path: Path) -> None:
    """`envoy --mode validate`, in a folder that has what the configuration names."""
    page = tmp_path / PAGE
    page.parent.mkdir(parents=True)
    page.write_text("a page")
    command = [envoy_path(), "--mode", "validate", "--config-path", config]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr.lower(), done.stderr


def test_there_are_configurations() -> None:
    """For browsers, and for load balancing."""
    assert {path.name for path in CONFIGS.glob("*.yaml")} == {"grpc-web.yaml", "load-balancer.yaml"}
    assert (ROOT / PAGE).parents[1].is_dir()
