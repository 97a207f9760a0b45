"""docs/metrics.md, and what docs/sizing.md says of memory, beside what a running server tells."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from sluicegate_client import Client
from tests.e2e.server import Server, serving
from tests.service.metrics.scrape import Scrape, scrape

DOCUMENT = (Path(__file__).parent.parent / "docs/metrics.md").read_text()
ROW = re.compile(r"^\| `((?:vllm|sluicegate):\w+)` \| (\w+) \| ([^|]*)\|", re.MULTILINE)
NEEDS_OTHERS = {"estimated", "kv_block", "lora"}
"""How names begin that a core of vLLM has, or one with adapters."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With all that has metrics of its own, after a call."""
    folder = tmp_path_factory.mktemp("server")
    certificate = trustme.CA().issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    certificate.private_key_pem.write_to_path(folder / "tls.key")
    (folder / "keys").write_text("alice:0123456789abcdefABCD\n")
    security = [f"--tls-cert={folder}/tls.crt", f"--tls-key={folder}/tls.key", f"--api-key-file={folder}/keys"]
    # Nobody listens there: spans are dropped, which is counted.
    others = ["--kv-events", "--num-speculative-tokens=2", "--otlp-traces-endpoint=http://127.0.0.1:9"]
    with serving(*security, *others, f"--plaintext-address=unix:{folder}/open") as server:
        with Client(f"unix:{folder}/open") as client:
            client.generate("one two one two one", max_tokens=8, temperature=0)
        yield server


@pytest.fixture(scope="module")
def scraped(server: Server) -> Scrape:
    return scrape(server.metrics_address)


def rows() -> dict[str, tuple[str, set[str]]]:
    """Type and labels by name; those of the engine have two more."""
    found = {}
    for table in re.split(r"(?=^\| name \|)", DOCUMENT, flags=re.MULTILINE):
        common = {"model_name", "engine"} if "| further labels |" in table else set()
        for name, kind, labels in ROW.findall(table):
            found[name] = kind, common | set(re.findall(r"`(\w+)`", labels))
    return found


def test_every_metric_of_a_running_server_is_told(scraped: Scrape) -> None:
    """By its name, with its type."""
    exposed = {family.name: family.type for family in scraped.families if ":" in family.name}
    told = {name: kind for name, (kind, _) in rows().items()}
    assert exposed == {name: kind for name, kind in told.items() if name in exposed}
    missing = {name.partition(":")[2] for name in told.keys() - exposed.keys()}
    assert [name for name in missing if not any(name.startswith(prefix) for prefix in NEEDS_OTHERS)] == []


def test_every_label_is_told(scraped: Scrape) -> None:
    """Each sample has the labels of its row; the bounds of buckets are no label of ours."""
    for family in (family for family in scraped.families if ":" in family.name):
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == rows()[family.name][1], sample.name


def test_the_bytes_of_a_token_are_those_that_the_server_says(server: Server) -> None:
    """By the formula that the table uses, for the embedded model in float32."""
    sizing = (Path(__file__).parent.parent / "docs/sizing.md").read_text()
    num_bytes = 2 * 30 * 3 * 64 * 4
    assert f"| {num_bytes:,} | `of {num_bytes} bytes a token` |" in sizing
    assert f", of {num_bytes} bytes a token;" in server.process.log
