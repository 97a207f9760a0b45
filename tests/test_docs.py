"""What the documents point to is there."""

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))
OTHERS = sorted(
    page
    for folder, pattern in ((".", "*.md"), ("bench", "**/*.md"), ("clients", "**/*.md"), ("deploy", "**/*.md"))
    for page in (ROOT / folder).glob(pattern)
    if not {"node_modules", "build"} & set(page.parts)
)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def _local_links(document: Path) -> list[tuple[str, Path]]:
    """Text and target of every link that leads to a file."""
    links = _LINK.findall(document.read_text())
    return [(text, document.parent / target.partition("#")[0]) for text, target in links if "://" not in target]


@functools.cache
def _functions(module: Path) -> set[str]:
    body = ast.parse(module.read_text()).body
    return {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


@functools.cache
def _anchors(document: Path) -> set[str]:
    """Of its headings, as links spell them; a title that occurs again is numbered."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    names = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
    return {f"{name}-{before}" if (before := names[:place].count(name)) else name for place, name in enumerate(names)}


@pytest.mark.parametrize("document", [*DOCUMENTS, *OTHERS], ids=lambda document: str(document.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    """Files, folders and headings that the text links are there."""
    links = [link for _, link in _LINK.findall(document.read_text()) if "://" not in link]
    assert [link for link in links if not _leads_somewhere(document, link)] == []


def _leads_somewhere(document: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = document.parent / path if path else document
    return target.exists() and (not anchor or anchor in _anchors(target))


def test_links_are_found() -> None:
    """In most documents; one may have none."""
    assert sum(bool(_local_links(document)) for document in DOCUMENTS) > len(DOCUMENTS) / 2


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_every_test_that_is_named_exists(document: Path) -> None:
    """A link `path::test` leads to that file, which has that test; and no test is named without a link."""
    named = [(*text.split("::"), target) for text, target in _local_links(document) if "::" in text]
    assert [path for path, _, target in named if (ROOT / path).resolve() != target.resolve()] == []
    functions = {target: _functions(target) for _, _, target in named}
    assert [name for _, name, target in named if name not in functions[target]] == []
    assert document.read_text().count("::test_") == len(named)


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "README.md"], ids=lambda document: document.name)
def test_every_call_that_is_shown_is_in_the_proto(document: Path) -> None:
    """By the names that stand in the addresses of `buf curl`."""
    shown = re.findall(r"sluicegate\.v1\.(\w+)/(\w+)", document.read_text())
    protos = "".join(proto.read_text() for proto in (ROOT / "proto/sluicegate/v1").glob("*.proto"))
    assert [name for service, name in shown if f"service {service} " not in protos] == []
    assert [name for _, name in shown if f"rpc {name}(" not in protos] == []


def test_every_metric_that_is_named_is_exposed() -> None:
    """The names of the operator's table are those that the gateway gives."""
    named = re.findall(r"`(?:vllm|sluicegate):(\w+)`", (ROOT / "docs/metrics.md").read_text())
    exposed = "".join(module.read_text() for module in (ROOT / "service").rglob("*.py"))
    assert named
    assert [name for name in named if not re.search(rf"[\":]{name}\"", exposed)] == []


def test_every_metric_that_is_exposed_is_named() -> None:
    """The operator's tables have all of them."""
    told = "".join(document.read_text() for document in DOCUMENTS)
    modules = [module.read_text() for module in (ROOT / "service").rglob("*.py")]
    exposed = {name for module in modules for name in re.findall(r"\"sluicegate:(\w+)\"", module)}
    assert exposed
    assert [name for name in sorted(exposed) if f"`sluicegate:{name}`" not in told] == []


def test_the_newest_release_of_the_changelog_is_the_version() -> None:
    """And what follows it comes first."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    releases = re.findall(r"^## \[(.+?)\](?: - \d{4}-\d\d-\d\d)?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[:2] == ["Unreleased", version]
