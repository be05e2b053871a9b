"""A backup that is restored in place of a database that went on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.service.running_server import RunningServer

pytestmark = pytest.mark.slow
JOIN = "orders/order[@id->i] FOLLOWED BY{i = j, 1 day} payments/payment[@for->j]"


def _publish(client: httpx.Client, stream: str, body: str) -> Any:
    return client.post(f"/v1/streams/{stream}/messages", content=body).raise_for_status().json()


def test_joins_forget_what_came_after_a_backup_that_is_restored(tmp_path: Path) -> None:
    """The snapshot of join state beside the database is then ahead of the log, and must not be used."""
    server = RunningServer(tmp_path).start()
    try:
        with server.client() as client:
            new = {"id": "paid", "query": JOIN, "subscriber": "desk"}
            client.post("/v1/subscriptions", json=new).raise_for_status()
            _publish(client, "orders", '<order id="1"/>')
            client.post("/v1/backup", json={"name": "backup.db"}).raise_for_status()
            _publish(client, "orders", '<order id="2"/>')
        assert server.stop() == 0
        assert (tmp_path / "sapwood.db-snapshot").exists()
        for suffix in ("", "-wal", "-shm"):
            (tmp_path / f"sapwood.db{suffix}").unlink(missing_ok=True)
        shutil.copy(tmp_path / "backup.db", tmp_path / "sapwood.db")
        server.start()
        with server.client() as client:
            assert _publish(client, "payments", '<payment for="2"/>')["deliveries"] == 0
            assert _publish(client, "payments", '<payment for="1"/>')["deliveries"] == 1
    finally:
        server.stop()
