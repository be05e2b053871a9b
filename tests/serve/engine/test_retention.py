"""How long the log keeps messages: those that somebody waits for, those that nobody does, and ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from sapwood.serve.engine import message_engine
from sapwood.serve.engine.engine_settings import EngineSettings
from sapwood.serve.engine.frames import (
    Acknowledge,
    Answer,
    ChangeStore,
    Committed,
    Event,
    Publish,
    Receipt,
)
from sapwood.serve.engine.message_engine import MessageEngine
from sapwood.serve.log import log_schema, log_writer
from sapwood.serve.log.log_database import open_log
from sapwood.serve.log.log_reader import LogReader
from sapwood.serve.log.retention import Retention
from sapwood.serve.tenants.evaluation import Publication
from sapwood.store import NewSubscription

HOUR, DAY = 3_600.0, 86_400.0


class Engine:
    """An engine in this process, whose answers are kept."""

    def __init__(self, folder: Path) -> None:
        location = str(folder / "log.db")
        settings = EngineSettings(
            location, location, str(folder / "snapshot"), retention=Retention(7 * DAY, HOUR, 30 * DAY)
        )
        self.answers: dict[int, Any] = {}
        self.engine = MessageEngine(settings, self._receive)
        self.engine.start()
        self.log = open_log(location)
        self._request = 0

    def _receive(self, event: Event) -> None:
        if isinstance(event, Committed):
            self.answers.update(event.answers)
        elif isinstance(event, Answer):
            self.answers[event.request] = event.result

    def call(self, kind: Any, *arguments: Any) -> Any:
        self._request += 1
        self.engine.handle([kind(self._request, *arguments)])
        self.engine._commits.drain()
        return self.answers[self._request]

    def subscribe(self, id: str, subscriber: str) -> None:
        self.call(ChangeStore, "", "put", {"row": NewSubscription(id, "//a", subscriber)})

    def publish(self, *ids: str) -> list[Receipt]:
        messages = [Publication("", "s", id, b"<a/>") for id in ids]
        found: list[Receipt] = self.call(Publish, messages)
        return found

    def age(self, seconds: float) -> None:
        """Let everything that is there be older."""
        with self.log.writing() as connection:
            for table in (log_schema.messages, log_schema.message_ids):
                connection.execute(text(f"UPDATE {table.name} SET received = received - {seconds}"))

    def retain(self) -> None:
        """Let the engine delete what is not kept any longer."""
        self.engine.idle()
        self.engine._commits.drain()

    def kept(self) -> list[str]:
        with self.log.reading() as connection:
            query = select(log_schema.messages.c.id).order_by(log_schema.messages.c.seq)
            return list(connection.scalars(query))

    def gaps(self) -> list[tuple[int, int, str]]:
        columns = log_schema.gaps.c
        with self.log.reading() as connection:
            return [
                tuple(row) for row in connection.execute(select(columns.after, columns.count, columns.reason))
            ]

    def read(self, inbox: int, after: int = 0) -> list[int]:
        return [entry.number for entry in LogReader(self.log).read_entries(inbox, after, 100)]


@pytest.fixture(params=["tail", "segments"])
def engine(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """Return an engine that deletes at once, with entries in the tail or in segments."""
    monkeypatch.setattr(message_engine, "_RETENTION", 0.0)
    if request.param == "segments":
        monkeypatch.setattr(log_writer, "TAIL_BATCHES", 1)
    engine = Engine(tmp_path)
    yield engine
    engine.engine.stop(save=False)
    engine.log.close()


def test_a_message_that_nobody_waits_for_is_deleted_after_an_hour(engine: Engine) -> None:
    engine.subscribe("all", "desk")
    engine.publish("m1", "m2")
    engine.call(Acknowledge, 1, 2)
    engine.age(HOUR / 2)
    engine.retain()
    assert engine.kept() == ["m1", "m2"]
    engine.age(HOUR)
    engine.publish("m3")
    engine.retain()
    assert engine.kept() == ["m3"]
    assert engine.gaps() == []
    assert engine.read(1, 2) == [3]


def test_a_message_that_somebody_waits_for_is_kept_for_a_week(engine: Engine) -> None:
    engine.subscribe("all", "desk")
    engine.subscribe("other", "audit")
    engine.publish("m1", "m2", "m3")
    engine.call(Acknowledge, 1, 3)
    engine.call(Acknowledge, 2, 1)
    engine.age(2 * DAY)
    engine.retain()
    assert engine.kept()[-2:] == ["m2", "m3"]
    assert engine.read(2, 1) == [2, 3]
    engine.age(6 * DAY)
    engine.publish("m4")
    engine.retain()
    assert engine.kept() == ["m4"]
    assert engine.gaps() == [(1, 2, "expired")]
    assert engine.engine._inboxes.backlog(2) == 1


def test_a_message_without_deliveries_is_deleted(engine: Engine) -> None:
    engine.publish("m1")
    engine.age(2 * HOUR)
    engine.retain()
    assert engine.kept() == []


def test_an_id_outlives_its_message(engine: Engine) -> None:
    [first] = engine.publish("m1")
    engine.age(2 * HOUR)
    engine.retain()
    assert engine.kept() == []
    engine.engine._ids._recent.clear()
    [again] = engine.publish("m1")
    assert again.duplicate
    assert again.seq == first.seq
    engine.age(31 * DAY)
    engine.publish("m2")
    engine.age(HOUR * 2)
    engine.retain()
    engine.engine._ids._recent.clear()
    [again] = engine.publish("m1")
    assert not again.duplicate
    assert again.seq > first.seq


def test_many_messages_are_deleted_in_steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.serve.log.retention._STEP", 10)
    engine.publish(*(f"m{i}" for i in range(25)))
    engine.age(2 * HOUR)
    left = []
    for _ in range(3):
        engine.retain()
        left.append(len(engine.kept()))
    assert left == [15, 5, 0]
