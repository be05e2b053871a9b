"""Traces of a server: spans for publishing, the engine and webhooks, if OpenTelemetry is there."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sapwood.serve.tracing import configure_tracing, trace
from tests.support.service.running_server import RunningServer
from tests.support.service.service_command import wait_until

needs_sdk = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry") is None
    or importlib.util.find_spec("opentelemetry.sdk") is None,
    reason="the SDK of OpenTelemetry is not installed",
)
pytestmark = pytest.mark.slow

CONFIGURE = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class ToFile(SpanExporter):
    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            for span in spans:
                file.write(json.dumps(json.loads(span.to_json()), separators=(",", ":")) + "\\n")
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
"""


def _serve(folder: Path, start: str, config: str = "") -> RunningServer:
    """Return a server whose Python runs some lines when it starts, as `opentelemetry-instrument` does it."""
    (folder / "sitecustomize.py").write_text(start)
    environment = {"PYTHONPATH": str(folder), "SPANS": str(folder / "spans.jsonl")}
    return RunningServer(folder, f'{config}\n[webhooks]\nallowed = ["127.0.0.1"]', environment)


def _publish(server: RunningServer, headers: dict[str, str] | None = None) -> None:
    with server.client() as client:
        webhook = {"url": "http://127.0.0.1:1/", "attempts": 1}
        client.put("/v1/subscribers/desk", json={"webhook": webhook}).raise_for_status()
        new = {"id": "all", "query": "/order", "subscriber": "desk"}
        client.post("/v1/subscriptions", json=new).raise_for_status()
        headers = {"Sapwood-Message-Id": "order-1"} | (headers or {})
        client.post("/v1/streams/orders/messages", content="<order/>", headers=headers).raise_for_status()


@needs_sdk
def test_publishing_the_engine_and_webhooks_have_spans(tmp_path: Path) -> None:
    spans: dict[str, dict[str, Any]] = {}

    def read() -> bool:
        file = tmp_path / "spans.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        spans.update((span["name"], span) for span in map(json.loads, lines))
        return spans.keys() >= {"publish", "evaluate and commit", "deliver"}

    with _serve(tmp_path, CONFIGURE) as server:
        _publish(server, {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
        wait_until(read)
    assert spans.keys() == {"publish", "evaluate and commit", "deliver"}  # none of FastAPI, with addresses
    publish, engine, deliver = spans["publish"], spans["evaluate and commit"], spans["deliver"]
    assert publish["context"]["trace_id"] == f"0x{'a' * 32}"  # that of the publisher
    assert publish["parent_id"] == f"0x{'b' * 16}"
    assert publish["attributes"]["messaging.message.id"] == "order-1"
    assert publish["attributes"]["messaging.destination.name"] == "orders"
    assert engine["parent_id"] == publish["context"]["span_id"]
    assert deliver["attributes"]["sapwood.delivery.id"] == "1-1"
    assert deliver["status"]["status_code"] == "ERROR"


@needs_sdk
def test_traces_can_be_switched_off(tmp_path: Path) -> None:
    with _serve(tmp_path, CONFIGURE, "[monitoring]\ntraces = false") as server:
        _publish(server)
    assert not (tmp_path / "spans.jsonl").exists()


def test_nothing_is_traced_where_nobody_has_configured_it(tmp_path: Path) -> None:
    with _serve(tmp_path, "") as server:
        _publish(server)
    assert not (tmp_path / "spans.jsonl").exists()


def test_opentelemetry_need_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    configure_tracing(True)
    with trace("publish", "server", {}, messaging__system="sapwood") as span:
        span.set(sapwood__attempt=1)
        span.fail("no matter")
