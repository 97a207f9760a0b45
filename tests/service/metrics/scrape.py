"""Asks a server for /metrics as Prometheus does."""

import asyncio
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    """One answer."""

    def __init__(self, text: str, content_type: str) -> None:
        self.text = text
        self.content_type = content_type
        self.families = list(text_string_to_metric_families(text))
        self._samples: Samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families
            for sample in family.samples
        }

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self._samples}

    def engine(self, name: str, model: str = "bytes", **labels: str) -> float:
        """The value of ``vllm:NAME`` for the one engine."""
        return self.value(f"vllm:{name}", model_name=model, engine="0", **labels)

    def value(self, name: str, **labels: str) -> float:
        return self._samples[name, frozenset(labels.items())]


def scrape(address: str) -> Scrape:
    """Raises URLError."""
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": OPENMETRICS})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return Scrape(answer.read().decode(), answer.headers["Content-Type"])


async def scrape_async(address: str) -> Scrape:
    return await asyncio.to_thread(scrape, address)
