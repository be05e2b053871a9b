"""The reference pages and diagrams agree with the code."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from sapwood import Limits
from sapwood.spark.pipeline.config import (
    JoinConfig,
    PipelineConfig,
    RelationalConfig,
    RunConfig,
    SubscriptionConfig,
)
from sapwood.spark.pipeline.endpoint_config import DeliveryConfig, SinkConfig, SourceConfig
from tests.support.docs.doc_blocks import ROOT
from tests.support.docs.generated_docs import generated_files
from tests.support.docs.import_diagram import Graph, draw, import_graph, reduce_transitively

DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"


def test_generated_parts_are_current() -> None:
    for file, text in generated_files():
        assert file.exists(), f"{file.name} is missing: make reference"
        assert file.read_text("utf-8") == text, f"{file.name} is not what the code gives: make reference"


def test_every_page_is_in_the_navigation() -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    pages = list(_pages(config["project"]["nav"]))
    assert sorted(pages) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _pages(value)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


# -- Python ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", sorted((REFERENCE / "python").glob("*.md")), ids=lambda page: page.stem)
def test_the_python_reference_has_all_public_names(page: Path) -> None:
    name = "sapwood" if page.stem == "sapwood" else f"sapwood.{page.stem}"
    module = importlib.import_module(name)
    parts = re.findall(r"^::: (\S+)\n((?:    .*\n?)*)", page.read_text("utf-8"), re.MULTILINE)
    assert sorted(path for path, _ in parts) == sorted(f"{name}.{public}" for public in module.__all__)
    for path, options in parts:
        owner = getattr(module, path.rpartition(".")[2])
        for member in re.findall(r"^        - (\w+)$", options, re.MULTILINE):
            assert hasattr(owner, member) or member in getattr(owner, "__annotations__", {}), (
                f"{path}.{member}"
            )


# -- the pipeline file -------------------------------------------------------------------------------------


def _keys(page: Path, heading: str) -> dict[str, str]:
    """Return the keys of the first table below a heading, and their defaults."""
    section = page.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    return {key: default.strip(" `") for keys, default in rows for key in re.findall(r"`(\w+)`", keys)}


def _defaults(*models: Any) -> dict[str, Any]:
    """Return the keys of tables and their defaults; None for a key that is required."""
    found = [(name, field) for model in models for name, field in model.model_fields.items()]
    return {field.alias or name: None if field.is_required() else field.default for name, field in found}


@pytest.mark.parametrize(
    ("heading", "models"),
    [
        ("Top level", [PipelineConfig]),
        ("`source`", [SourceConfig]),
        ("`subscriptions`", [SubscriptionConfig]),
        ("Engine", [RelationalConfig]),
        ("`deliveries` and `rejects`", [SinkConfig, DeliveryConfig]),
        ("`joins`", [JoinConfig]),
        ("`run`", [RunConfig]),
    ],
)
def test_the_keys_of_a_pipeline_file_are_described_with_their_defaults(
    heading: str, models: list[Any]
) -> None:
    keys, known = _keys(REFERENCE / "pipeline-file.md", heading), _defaults(*models)
    assert keys.keys() == known.keys()
    for key, default in keys.items():
        value = known[key]
        if default:
            described = tomllib.loads(f"value = {default}")["value"]
            assert described == (list(value) if isinstance(value, tuple) else value), key
        else:
            assert not value, f"{key} is {value!r} by default"


def test_limits_are_described() -> None:
    keys = _keys(REFERENCE / "messages.md", "Limits")
    units = {"MiB": 1 << 20, "GiB": 1 << 30}
    described = {}
    for key, default in keys.items():
        number, _, unit = default.replace(",", "").partition(" ")
        described[key] = float(number) * units.get(unit, 1)
    assert described == {field.name: getattr(Limits(), field.name) for field in fields(Limits)}


# -- the HTTP API ------------------------------------------------------------------------------------------


def test_the_problems_of_the_http_api_are_described() -> None:
    described = {(slug, int(status)) for slug, status in _problem_rows()}
    sources = [path.read_text("utf-8") for path in (ROOT / "src" / "sapwood" / "serve").rglob("*.py")]
    raised = re.findall(r'Problem\(\s*(\d{3}),\s*"([a-z-]+)"', "\n".join(sources))
    assert {(slug, int(status)) for status, slug in raised} <= described


def _problem_rows() -> list[tuple[str, str]]:
    section = (REFERENCE / "http-api.md").read_text("utf-8").partition("\n## Problems\n")[2]
    return re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", section, re.MULTILINE)


# -- packages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["docs/explanation/architecture.md", "CONTRIBUTING.md"])
def test_all_packages_are_described(page: str) -> None:
    section = (ROOT / page).read_text("utf-8").partition("\n## Packages\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)", section, re.MULTILINE)) == import_graph().keys()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/explanation/how-it-works.md"])
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for name in re.findall(r"`((?:src|tests|docs|engine)/[\w/.-]+)`", text):
        found = ROOT / "src" / "sapwood" / name if name.startswith("engine/") else ROOT / name
        assert found.exists(), f"{page} names {name}"


GRAPH: Graph = {
    "a": frozenset("bcd"),
    "b": frozenset("cd"),
    "c": frozenset("d"),
    "d": frozenset(),
}


def test_imports_that_follow_from_others_are_not_drawn() -> None:
    assert reduce_transitively(GRAPH) == {
        "a": frozenset("b"),
        "b": frozenset("c"),
        "c": frozenset("d"),
        "d": frozenset(),
    }
    assert draw(GRAPH).count("marker-end") == 3


def test_a_diagram_changes_with_the_imports() -> None:
    assert draw(GRAPH) != draw(GRAPH | {"b": frozenset("d")})


def test_a_cycle_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="a cycle among a, b"):
        draw({"a": frozenset("b"), "b": frozenset("a")})
