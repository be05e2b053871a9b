"""Older messages that are kept ready while a batch is joined."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from sapwood.join.state.message_state import StoredMessage
from sapwood.join.state.portable_state import PortableMessage
from sapwood.join.state.portable_state import PortableValue as Said
from sapwood.spark.joins import join_emitter
from sapwood.spark.joins.schema import JoinRow, ParsedMessage, serialize_message

ROOM = 300_000


@pytest.mark.parametrize(("values", "size"), [(0, 15), (1, 15), (20, 500), (5, 10_000)])
def test_they_take_no_more_than_their_room(values: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_emitter, "_CACHE_BYTES", ROOM)
    rows = [(str(i).encode(), serialize_message(message(i, values, size))) for i in range(1_000)]
    tracemalloc.start()
    older = join_emitter._OlderMessages()
    for name, record in rows:
        row = JoinRow("", b"", name, ParsedMessage(record))
        assert older.get(row).records[0].data == b"x" * size
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert ROOM / 3 < taken < 1.2 * ROOM


def message(number: int, values: int, size: int) -> PortableMessage:
    said = [Said(bytes([n]) * 8, f"value {number} {n}", (1, n, 300 + number)) for n in range(values)]
    return PortableMessage(
        (StoredMessage(f"m{number}", "S", 1.5 * number, number, b"x" * size, None),), [said]
    )
