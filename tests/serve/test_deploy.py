"""The files in `deploy`: they fit the settings, the metrics and the source."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from sapwood import Limits
from sapwood.serve.config import ServerConfig, parse_config
from tests.support.docs.doc_blocks import ROOT
from tests.support.service.running_server import RunningServer
from tests.support.service.service_command import wait_until

DEPLOY = ROOT / "deploy"


# -- settings ----------------------------------------------------------------------------------------------


def _keys(table: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _keys(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def _known(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Yield the keys of a model; `*` is a name that the user gives."""
    for key, field in model.model_fields.items():
        inner: Any = field.annotation
        name = f"{path}{key}"
        if get_origin(inner) is dict:
            inner, name = get_args(inner)[1], f"{name}.*"
        tables = [
            type_ for type_ in get_args(inner) if isinstance(type_, type) and issubclass(type_, BaseModel)
        ]
        inner = tables[0] if tables else inner  # a table that may be absent
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _known(inner, f"{name}.")
        elif key != "limits":
            yield name


def test_the_settings_are_the_defaults() -> None:
    given = parse_config(tomllib.loads((DEPLOY / "server.toml").read_text("utf-8")))
    assert given.model_copy(update={"limits": {}}) == ServerConfig()
    assert given.message_limits() == Limits()


def test_all_settings_are_there() -> None:
    text = (DEPLOY / "server.toml").read_text("utf-8")
    content = tomllib.loads(re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE))
    parse_config(content)
    named = {re.sub(r"^(streams|tenants)\.\w+\.", r"\1.*.", key) for key in _keys(content)}
    limits = {f"limits.{field.name}" for field in fields(Limits)}
    quota = {key for key in _known(ServerConfig) if key.startswith("tenants.")}  # which are those of [quota]
    assert named | quota == {*_known(ServerConfig), *limits}


# -- metrics -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the metrics that a server has, all suffixes included."""
    with RunningServer(tmp_path_factory.mktemp("metrics")) as server, server.client() as client:
        wait_until(lambda: "sapwood_log_available" in client.get("/metrics").text)
        kinds = re.findall(r"^# TYPE (\w+) (\w+)$", client.get("/metrics").text, re.MULTILINE)
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    return {f"{name}{suffix}" for name, kind in kinds for suffix in suffixes.get(kind, ("",))}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grafana-dashboard.json", "alerts.yml"])
def test_all_metrics_that_are_shown_are_exported(name: str, metrics: set[str]) -> None:
    found = set(re.findall(r"\bsapwood_\w+", (DEPLOY / name).read_text("utf-8")))
    assert len(found) >= 9
    assert found <= metrics


@pytest.mark.slow
def test_the_metrics_that_the_docs_name_are_exported(metrics: set[str]) -> None:
    text = (ROOT / "docs" / "how-to" / "operate.md").read_text("utf-8")
    for name in re.findall(r"`(sapwood_\w+)`", text):
        assert name in metrics or f"{name}_bucket" in metrics, name


def test_the_dashboard_has_panels_that_do_not_overlap() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text("utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        assert all(target["expr"].count("(") == target["expr"].count(")") for target in panel["targets"])
        taken |= cells


def test_prometheus_finds_the_alerts() -> None:
    yaml = pytest.importorskip("yaml")
    settings = yaml.safe_load((DEPLOY / "prometheus.yml").read_text("utf-8"))
    assert all((DEPLOY / name).exists() for name in settings["rule_files"])
    [group] = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]:
        assert rule["expr"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]


# -- systemd and containers --------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "sapwood.service"
    text = (DEPLOY / "sapwood.service").read_text("utf-8")
    unit.write_text(text.replace("/opt/sapwood/bin/sapwood", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_container_copies_what_the_build_needs() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    copied = [
        name for names in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for name in names.split()
    ]
    assert {"pyproject.toml", "hatch_build.py", "src"} <= set(copied)
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {project["readme"], *project["license-files"]} <= set(copied)
    assert text.index("USER ") < text.index("ENTRYPOINT")
