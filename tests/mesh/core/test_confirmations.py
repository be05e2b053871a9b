"""Who waits until all brokers have a change."""

from __future__ import annotations

from sapwood.mesh.core.frames import TableFrame
from sapwood.mesh.core.tables.confirmations import Confirmations, Wait
from sapwood.mesh.core.tables.route_table import RouteTable
from tests.mesh.core.routes import route


def table_of(*links: str) -> tuple[RouteTable, Confirmations]:
    """A table whose neighbours have told theirs."""
    table = RouteTable()
    table.change_local((), ())
    for link in links:
        table.add_link(link)
        table.receive(link, TableFrame(1, begins=True))
    return table, Confirmations(table)


def change(table: RouteTable, name: str) -> None:
    table.change_local([route(name)], ())
    for link in table.told:
        table.take_additions(link)


def wait_for(confirmations: Confirmations, token: str) -> None:
    confirmations.add(Wait(confirmations.versions(), token))


def taken(confirmations: Confirmations) -> list[object]:
    return [wait.token for wait in confirmations.take()]


def test_without_neighbours_a_change_is_everywhere_at_once() -> None:
    _, confirmations = table_of()
    wait_for(confirmations, "one")
    assert taken(confirmations) == ["one"]
    assert len(confirmations) == 0


def test_all_neighbours_have_to_confirm_in_any_order() -> None:
    table, confirmations = table_of("a", "b")
    for token in ("one", "two", "three"):
        change(table, token)
        wait_for(confirmations, token)
    assert taken(confirmations) == []
    confirmations.confirm("b", 3)
    assert taken(confirmations) == []
    confirmations.confirm("a", 2)
    assert taken(confirmations) == ["one", "two"]
    confirmations.confirm("a", 1)  # an older one changes nothing
    assert len(confirmations) == 1
    confirmations.confirm("a", 3)
    assert taken(confirmations) == ["three"]


def test_a_change_that_all_have_already_is_not_waited_for() -> None:
    table, confirmations = table_of("a")
    change(table, "one")
    confirmations.confirm("a", 1)
    wait_for(confirmations, "again")
    assert taken(confirmations) == ["again"]


def test_a_neighbour_waits_for_the_others_only() -> None:
    table, confirmations = table_of("a", "b", "c")
    change(table, "one")
    assert confirmations.versions(besides="b") == {"a": 1, "c": 1}


def test_a_neighbour_that_has_gone_is_not_waited_for_and_gets_no_answer() -> None:
    table, confirmations = table_of("a", "b")
    change(table, "one")
    wait_for(confirmations, "one")
    confirmations.add(Wait(confirmations.versions(besides="b"), link="b", version=4))
    confirmations.confirm("a", 1)
    confirmations.drop("b")
    assert taken(confirmations) == ["one"]
    assert len(confirmations) == 0


def test_after_a_reset_those_here_wait_for_all_neighbours_again() -> None:
    """Even one whose last neighbour has just gone with the old tree: others are in the new one."""
    table, confirmations = table_of("a")
    change(table, "one")
    wait_for(confirmations, "one")
    confirmations.add(Wait({"a": 1}, link="x", version=4))
    table.remove_link("a")
    confirmations.drop("a")
    table.add_link("b")
    table.take_additions("b", always=True)
    confirmations.begin_anew()
    assert taken(confirmations) == []
    assert len(confirmations) == 1
    confirmations.confirm("b", 1)
    assert taken(confirmations) == ["one"]


def test_many_waits_cost_as_much_as_their_confirmations() -> None:
    """Each is looked at once for each neighbour, not at every confirmation: that would take minutes."""
    table, confirmations = table_of("a", "b")
    for number in range(50_000):
        table.take_additions("a", always=True)
        table.take_additions("b", always=True)
        confirmations.add(Wait(confirmations.versions(), number))
    for number in range(1, 50_001):
        confirmations.confirm("a", number)
        confirmations.confirm("b", number)
        assert taken(confirmations) == [number - 1]
