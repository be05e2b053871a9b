"""The durable state of a node, and the steps that it is made of."""

from __future__ import annotations

from sapwood.mesh.core.actions import Reply, Store, StoredMessage, TableChange
from sapwood.mesh.core.frames import Epoch, MessageKey
from sapwood.mesh.core.messages.journal import Cursor, Journal
from sapwood.mesh.core.node_state import NodeState
from tests.mesh.core.routes import route

EPOCH = Epoch(1, 1)


def message(source: str, number: int) -> StoredMessage:
    return StoredMessage(MessageKey(source, number), None, frozenset(), 1)


def test_floors_remove_the_messages_of_their_source() -> None:
    state = NodeState("n")
    for number in (1, 2, 4, 3):
        state.apply(Store(number, message("s", number)))
        state.apply(Store(number, message("t", number)))
    state.apply(Store(9, floors={"s": 3}))
    assert set(state.messages) == {("s", 4), ("t", 1), ("t", 2), ("t", 3), ("t", 4)}
    state.apply(Store(10, floors={"s": 2, "u": 5}))
    assert state.floors == {"s": 3, "u": 5}


def test_a_state_that_is_read_from_a_store_goes_on() -> None:
    messages = {MessageKey("s", n): message("s", n) for n in (3, 1)}
    state = NodeState("n", messages=messages)
    state.apply(Store(1, message("s", 7), floors={"s": 3}))
    assert list(state.messages) == [("s", 7)]


def test_tables() -> None:
    one, two, three = route("one"), route("two"), route("three")
    state = NodeState("n")
    state.apply(Store(1, tables=(TableChange("a", 1, True, True, (one, two)),)))
    state.apply(Store(2, tables=(TableChange("a", 2, True, False, (three,), (one.key,)),)))
    table = state.tables["a"]
    assert (table.version, table.is_complete, table.is_open) == (2, True, False)
    assert set(table.routes.values()) == {two, three}
    state.apply(Store(3, tables=(TableChange("a", 0, False, False, is_dropped=True),)))
    assert state.tables == {}


def test_many_floors_cost_as_much_as_their_messages() -> None:
    """Each floor looks at the messages that it settles only: 100,000 would take minutes otherwise."""
    state = NodeState("n")
    for number in range(1, 100_001):
        state.apply(Store(number, message("s", number)))
    for number in range(5, 100_001, 5):
        state.apply(Store(number, floors={"s": number}))
    assert not state.messages


# -- the journal -----------------------------------------------------------------------------------------


def test_steps_have_all_that_has_changed_once() -> None:
    journal = Journal()
    journal.set_cursor("a", EPOCH, 3)
    journal.set_cursor("a", EPOCH, 4)
    journal.set_floor("s", 7)
    journal.change_table(TableChange("a", 1, True, False))
    assert journal.has_changes is journal.has_tables is True
    step = journal.store(message("s", 8), match=5)
    assert (step.number, step.cursors, step.floors, len(step.tables)) == (1, {"a": (EPOCH, 4)}, {"s": 7}, 1)
    assert journal.store() == Store(2)


def test_a_step_says_what_replaces_a_content() -> None:
    assert Journal().store(message("s", 8), replaces=5) == Store(1, message("s", 8), replaces=5)


def test_promises_wait_until_their_step_is_durable() -> None:
    journal = Journal()
    for number in (1, 2, 3):
        journal.set_cursor("a", EPOCH, number)
        journal.store()
        journal.wait(Reply(number))
    assert journal.on_stored(2) == ([Reply(1), Reply(2)], [Cursor("a", EPOCH, 2)])
    assert journal.on_stored(1) == ([], [])
    assert journal.stored == 2
    assert journal.on_stored(3) == ([Reply(3)], [Cursor("a", EPOCH, 3)])


def test_a_link_that_is_gone_has_no_cursor() -> None:
    journal = Journal()
    journal.set_cursor("a", EPOCH, 1)
    journal.drop_cursor("a")
    assert not journal.has_changes
