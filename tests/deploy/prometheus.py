"""Prometheus itself; Debian's package `prometheus` has promtool, too."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml


def promtool(*arguments: str, cwd: Path) -> str:
    """What it says; the test fails if it does not like what it sees."""
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


DEPLOY = Path(__file__).parents[2] / "deploy"


class Prometheus:
    """As compose.yaml has it, but for ``target``, every second. Use as ``async with``; its files are in ``folder``."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder = folder
        self._target = target
        self._address = ""

    async def get(self, path: str, **parameters: str) -> Any:
        """``data`` of an answer of its API; the test fails if there is an error."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        answer = await asyncio.to_thread(_get, url)
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of now."""
        result: list[dict[str, Any]] = (await self.get("query", query=expression))["result"]
        return result

    async def until(self, expression: str) -> None:
        """Return when it has a result."""
        async with asyncio.timeout(60):
            while not await self.query(expression):
                pass

    async def __aenter__(self) -> Self:
        config = yaml.safe_load((DEPLOY / "compose/prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [self._target]
        (self._folder / "prometheus.yaml").write_text(json.dumps(config))
        shutil.copy(DEPLOY / "prometheus/alerts.yaml", self._folder)
        flags = ["--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"]
        self._process = await asyncio.create_subprocess_exec(
            "prometheus", *flags, cwd=self._folder, stderr=asyncio.subprocess.PIPE
        )
        self._address = await self._listening()
        return self

    async def _listening(self) -> str:
        assert self._process.stderr is not None
        said = ""
        async with asyncio.timeout(60):
            while not (match := re.search(r'msg="Listening on" address=(\S+)', said)):
                line = (await self._process.stderr.readline()).decode()
                assert line, said
                said += line
        self._reading = asyncio.ensure_future(self._process.stderr.read())
        return match[1]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        await self._process.wait()
        await self._reading


def _get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)
