"""compose.yaml, and what Prometheus and Grafana are given by it; `make container-test` runs its server."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.prometheus import promtool
from tests.toolchain import require

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
PROVISIONED = ROOT / "deploy/compose/grafana"


def files_of(service: str) -> dict[str, Path]:
    """By where they are mounted."""
    mounts = [mount.split(":") for mount in SERVICES[service]["volumes"] if mount.startswith("./")]
    return {inside: ROOT / path for path, inside, _ in mounts}


def test_schema() -> None:
    """It is valid by the Compose specification."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema=vendor.compose-spec", "compose.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_kept_small(name: str) -> None:
    """A root that is read-only, no capabilities, a bound on memory, a port on this machine alone."""
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert all(path.exists() for path in files_of(name).values())
    volumes = {mount.partition(":")[0] for mount in service["volumes"]} - {"."}
    assert {volume for volume in volumes if not volume.startswith("./")} <= {*COMPOSE["volumes"]}


def test_images_are_pinned() -> None:
    """All but our own, which is built."""
    build = SERVICES["sluicegate"]["build"]
    assert build["context"] == "."
    assert all(f"ARG {name}=" in (ROOT / "Dockerfile").read_text() for name in build["args"])
    tags = [service["image"].partition(":")[2] for name, service in SERVICES.items() if name != "sluicegate"]
    assert all(tag[-1].isdigit() for tag in tags)


def test_nobody_asks_before_there_is_an_answer() -> None:
    """Grafana waits for Prometheus, and that for a server that is ready."""
    assert SERVICES["prometheus"]["depends_on"] == {"sluicegate": {"condition": "service_healthy"}}
    assert SERVICES["grafana"]["depends_on"] == {"prometheus": {"condition": "service_healthy"}}
    assert "HEALTHCHECK" in (ROOT / "Dockerfile").read_text()


def test_scrape_configuration(tmp_path: Path) -> None:
    """Prometheus takes it, rules and all; its job has the name that alerts ask for, its target the port of metrics."""
    require("promtool")
    for inside, path in files_of("prometheus").items():
        shutil.copy(path, tmp_path / Path(inside).name)
    assert "SUCCESS" in promtool("check", "config", "prometheus.yaml", cwd=tmp_path)
    (job,) = yaml.safe_load((tmp_path / "prometheus.yaml").read_text())["scrape_configs"]
    assert job["job_name"] == "sluicegate"
    assert job["static_configs"] == [{"targets": ["sluicegate:9464"]}]


def test_grafana_finds_the_dashboard() -> None:
    """Its provider looks where the dashboard is mounted, and the source of data is of the kind that panels ask."""
    (provider,) = yaml.safe_load((PROVISIONED / "dashboards/sluicegate.yaml").read_text())["providers"]
    (source,) = yaml.safe_load((PROVISIONED / "datasources/prometheus.yaml").read_text())["datasources"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).parent == Path(provider["options"]["path"])
    dashboard = json.loads(files_of("grafana")[home].read_text())
    variables = [each for each in dashboard["templating"]["list"] if each["type"] == "datasource"]
    assert [variable["query"] for variable in variables] == [source["type"]]
    assert source["url"] == "http://prometheus:9090"
