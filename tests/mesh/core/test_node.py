"""A node driven by hand: the cases that make up its protocol."""

from __future__ import annotations

import pytest

from sapwood.mesh.core import events
from sapwood.mesh.core.actions import Match, Release, Send, SetRoutes, Store
from sapwood.mesh.core.frames import (
    EVERYTHING,
    Ack,
    Beat,
    ConfirmFrame,
    Content,
    Epoch,
    MessageFrame,
    MessageKey,
    Nack,
    NeedTable,
    Open,
    Opened,
    Refused,
    TableFrame,
)
from sapwood.mesh.core.messages.message_pipeline import MATCHES, TABLE_WAIT
from sapwood.mesh.core.node import Node
from sapwood.mesh.core.node_state import NodeState
from sapwood.mesh.core.topology import build_tree
from tests.mesh.core.node_driver import NodeDriver, messages_of
from tests.mesh.core.routes import route

TREE = build_tree({"a": None, "n": "a", "b": "n", "far": "a"})
"""the node is n, between a and b"""


@pytest.fixture
def node() -> NodeDriver:
    """A node at rest, between two neighbours that want nothing."""
    driver = NodeDriver("n", TREE)
    driver.feed(events.RoutesChanged(None))
    driver.connect("a", "b")
    driver.asked.clear()
    return driver


# -- messages --------------------------------------------------------------------------------------------


def test_a_publisher_is_answered_when_the_message_is_stored(node: NodeDriver) -> None:
    node.answers_stores = False
    node.publish(7)
    (store,) = (action for action in node.asked if isinstance(action, Store) and action.message is not None)
    assert store.message is not None
    assert store.message.key == ("n", 1)
    assert node.replies() == []
    node.feed(events.Stored(store.number))
    assert node.replies() == [7]


def test_a_message_is_sent_to_those_who_want_it_when_it_is_stored(node: NodeDriver) -> None:
    node.wanted = {7: frozenset("ab"), 8: frozenset("b")}
    node.answers_stores = False
    node.publish(7, 8)
    assert node.messages("b") == []
    node.feed(events.Stored(1_000))
    assert node.messages("a") == [("n", 1)]
    assert node.messages("b") == [("n", 1), ("n", 2)]


def test_a_message_is_not_sent_back(node: NodeDriver) -> None:
    node.wanted = {1: frozenset("ab")}
    node.receive("a", *messages_of("far", [1]))
    assert node.messages("b") == [("far", 1)]
    assert node.messages("a") == []


def test_a_refused_message_gets_no_number(node: NodeDriver) -> None:
    node.answers_matches = False
    node.publish(7, 8)
    one, two = node.matches
    node.feed(
        events.Matched(one.token, frozenset(), "not well-formed"), events.Matched(two.token, frozenset())
    )
    assert node.replies() == [7, 8]
    assert list(node.state.messages) == [("n", 1)]


def test_messages_are_finished_in_order(node: NodeDriver) -> None:
    node.answers_matches = False
    node.publish(7, 8)
    one, two = node.matches
    node.feed(events.Matched(two.token, frozenset()))
    assert node.replies() == []
    node.feed(events.Matched(one.token, frozenset()))
    assert node.replies() == [7, 8]


def test_a_known_message_is_handled_once(node: NodeDriver) -> None:
    node.receive("a", *messages_of("far", [1, 2, 1, 2, 3]))
    keys = [match.key for match in node.asked if isinstance(match, Match)]
    assert keys == [("far", 1), ("far", 2), ("far", 3)]
    assert node.node.duplicates == 2


def test_a_settled_message_is_known_for_ever(node: NodeDriver) -> None:
    node.receive("a", *messages_of("far", [1, 2]))
    node.control("a", Beat(Epoch(1, 1), 3, floors={"far": 2}))
    node.tick()
    assert node.node.unsettled() == 0
    assert node.state.messages == {}
    node.receive("a", *messages_of("far", [1, 2]))
    assert node.node.duplicates == 2


def test_no_more_messages_are_matched_at_a_time_than_the_limit(node: NodeDriver) -> None:
    node.answers_matches = False
    node.publish(*range(MATCHES + 10))
    assert len(node.matches) == MATCHES
    assert node.node.waiting == MATCHES + 10
    node.answer_matches()
    node.answer_matches()
    assert len(node.replies()) == MATCHES + 10


# -- links -----------------------------------------------------------------------------------------------


def test_frames_out_of_order_are_asked_for(node: NodeDriver) -> None:
    epoch = Epoch(1, 1)
    one, two, three = messages_of("far", [1, 2, 3])
    node.feed(events.Received("a", epoch, 3, two), events.Received("a", epoch, 4, three))
    assert node.controls("a", Nack) == [Nack(epoch, 2)]  # once a second
    assert node.take(Match) == []
    node.feed(events.Received("a", epoch, 2, one), events.Received("a", epoch, 3, two))
    assert [match.key for match in node.take(Match)] == [("far", 1), ("far", 2)]


def test_frames_are_released_when_they_are_stored(node: NodeDriver) -> None:
    node.answers_stores = False
    node.receive("a", *messages_of("far", [1, 2]))
    assert node.take(Release) == []
    node.feed(events.Stored(1_000))
    assert node.take(Release) == [Release("a", Epoch(1, 1), 3)]
    node.tick()
    assert node.controls("a", Ack)[-1].received == 3


def test_what_the_neighbour_has_not_settled_is_sent_again_when_a_link_opens(node: NodeDriver) -> None:
    node.wanted = {7: frozenset("b"), 8: frozenset("b")}
    node.publish(7, 8)
    (epoch,) = {action.epoch for action in node.take(Send)}
    node.control("b", Refused(epoch))
    node.tick(1.0)
    (opening,) = node.controls("b", Open)
    assert opening.epoch == Epoch(1, 1, 1)
    node.control("b", Opened(opening.epoch, 0, {"n": ((1, 1),)}))
    table, one, two = (action.frame for action in node.take(Send))
    assert isinstance(table, TableFrame)
    assert table.begins
    assert isinstance(one, MessageFrame)
    assert isinstance(two, MessageFrame)
    assert (one.key.number, one.content is None) == (1, True)
    assert (two.key.number, two.content is None) == (2, False)


def test_frames_that_the_transport_has_given_up_are_sent_again_after_a_while(node: NodeDriver) -> None:
    node.wanted = {7: frozenset("b")}
    node.publish(7)
    (sent,) = node.take(Send)
    node.feed(events.SendFailed("b", sent.epoch))
    assert node.take(Send) == []
    node.tick(0.2)
    again = node.take(Send)
    assert again[-1] == sent


def test_frames_of_another_epoch_are_refused_or_released(node: NodeDriver) -> None:
    (frame,) = messages_of("far", [1])
    node.feed(events.Received("a", Epoch(1, 9), 1, frame))
    assert node.controls("a", Refused) == [Refused(Epoch(1, 9))]
    node.feed(events.Received("a", Epoch(0, 1), 5, frame))
    assert node.take(Release) == [Release("a", Epoch(0, 1), 5)]


def test_lost_frames_are_reported_and_asked_for(node: NodeDriver) -> None:
    node.tick(3.0)
    node.feed(events.Drained("a"))
    node.control("a", Beat(Epoch(1, 1), 4))
    assert node.reports() == ["lost"]
    assert node.controls("a", Nack) == [Nack(Epoch(1, 1), 2)]


def test_events_of_brokers_that_are_no_neighbours_change_nothing(node: NodeDriver) -> None:
    epoch = Epoch(1, 1)
    (frame,) = messages_of("far", [1])
    node.feed(
        events.Received("x", epoch, 1, frame),
        events.Controlled("x", Open(epoch)),
        events.Accepted("x", epoch, 1),
        events.SendFailed("x", epoch),
        events.Drained("x"),
        events.Matched(999, frozenset()),
        events.Stored(0),
    )
    assert node.asked == []


def test_whether_a_frame_was_taken(node: NodeDriver) -> None:
    assert node.node.has_taken("a", Epoch(1, 1), 1)
    assert not node.node.has_taken("a", Epoch(1, 1), 2)
    assert not node.node.has_taken("a", Epoch(1, 2), 1)
    assert not node.node.has_taken("x", Epoch(1, 1), 1)


# -- tables ----------------------------------------------------------------------------------------------


def test_a_route_of_one_side_is_told_to_the_other_and_then_confirmed(node: NodeDriver) -> None:
    wanted = route("//title")
    node.receive("b", TableFrame(2, (wanted,)))
    assert SetRoutes("b", (wanted,)) in node.asked
    (told,) = node.frames("a", TableFrame)
    assert told.added == (wanted,)
    assert node.frames("b", ConfirmFrame) == []
    epoch = next(action.epoch for action in node.asked if isinstance(action, Send))
    node.receive("a", ConfirmFrame(epoch, told.version))
    assert node.frames("b", ConfirmFrame) == [ConfirmFrame(Epoch(1, 1), 2)]


def test_a_confirmation_waits_until_the_table_is_stored() -> None:
    node = NodeDriver("n", build_tree({"n": None, "b": "n"}))
    node.feed(events.RoutesChanged(None))
    node.connect("b")
    node.asked.clear()
    node.answers_stores = False
    node.receive("b", TableFrame(2, (route("//title"),)))
    assert node.frames("b", ConfirmFrame) == []
    (store,) = (action for action in node.asked if isinstance(action, Store))
    assert [change.link for change in store.tables] == ["b"]
    node.feed(events.Stored(store.number))
    assert node.frames("b", ConfirmFrame) == [ConfirmFrame(Epoch(1, 1), 2)]


def test_a_subscriber_waits_until_all_sides_have_confirmed(node: NodeDriver) -> None:
    node.feed(events.RoutesChanged("subscriber", (route("//title"),)))
    epochs = {action.link: action.epoch for action in node.asked if isinstance(action, Send)}
    versions = {link: node.frames(link, TableFrame)[0].version for link in "ab"}
    node.receive("a", ConfirmFrame(epochs["a"], versions["a"]))
    assert node.replies() == []
    node.receive("b", ConfirmFrame(epochs["b"], versions["b"] - 1))
    assert node.replies() == []
    assert node.node.unconfirmed == 1
    node.receive("b", ConfirmFrame(epochs["b"], versions["b"]))
    assert node.replies() == ["subscriber"]


def test_a_barrier_waits_for_all_sides_though_nothing_has_changed(node: NodeDriver) -> None:
    node.feed(events.BarrierSet("barrier"))
    assert node.replies() == []
    for link in "ab":
        (frame,) = node.frames(link, TableFrame)
        epoch = next(a.epoch for a in node.asked if isinstance(a, Send) and a.link == link)
        node.receive(link, ConfirmFrame(epoch, frame.version))
    assert node.replies() == ["barrier"]


def test_routes_are_removed_later(node: NodeDriver) -> None:
    wanted = route("//title")
    node.feed(events.RoutesChanged(None, (wanted,)))
    node.feed(events.RoutesChanged(None, (), (wanted,)))
    assert [frame.removed for frame in node.frames("a", TableFrame)] == [()]
    node.tick(1.0)
    assert [frame.removed for frame in node.frames("a", TableFrame)] == [(), (wanted.key,)]


def test_a_table_change_waits_for_messages_that_are_being_matched_and_holds_up_others(
    node: NodeDriver,
) -> None:
    node.answers_matches = False
    node.publish(1)
    node.receive("b", TableFrame(2, (route("//title"),)))
    node.publish(2)
    assert len(node.matches) == 1
    assert node.take(SetRoutes) == []
    node.answer_matches()
    kinds = [type(action) for action in node.asked if isinstance(action, SetRoutes | Match)]
    assert kinds == [SetRoutes, Match]


def test_a_neighbour_without_a_table_gets_everything() -> None:
    node = NodeDriver("n", TREE)
    node.feed(events.RoutesChanged(None))
    node.connect("a")
    node.open_outbound("b")
    node.asked.clear()
    node.receive("a", *messages_of("far", [1]))
    assert node.messages("b") == []  # the table may come
    node.tick(TABLE_WAIT)
    assert [(frame.key, frame.table) for frame in node.frames("b", MessageFrame)] == [
        (("far", 1), EVERYTHING)
    ]
    node.open_inbound("b")
    node.receive("b", TableFrame(1, begins=True, is_open=True))
    node.receive("a", *messages_of("far", [2]))
    node.receive("b", TableFrame(2))
    node.receive("a", *messages_of("far", [3]))
    assert node.messages("b") == [("far", 1), ("far", 2)]


def test_a_node_says_that_more_may_be_wanted_until_it_knows_its_own_subscriptions() -> None:
    node = NodeDriver("n", TREE)
    node.connect("a", "b")
    assert all(frame.is_open for frame in node.frames("a", TableFrame))
    node.feed(events.RoutesChanged(None, (route("//title"),)))
    last = node.frames("a", TableFrame)[-1]
    assert (len(last.added), last.is_open) == (1, False)


def test_a_table_with_another_digest_is_forgotten_and_asked_for(node: NodeDriver) -> None:
    node.receive("b", TableFrame(2, (route("//title"),)))
    node.control("b", Beat(Epoch(1, 1), 2, version=2, digest=5, count=1))
    assert node.controls("b", NeedTable) == [NeedTable(Epoch(1, 1))]
    assert node.node.table.unknown_links() == ["b"]


def test_a_table_that_is_still_on_its_way_is_not_asked_for(node: NodeDriver) -> None:
    node.receive("b", TableFrame(2, (route("//title"),)))
    for beat in (
        Beat(Epoch(1, 1), 3, version=2, digest=5, count=1),  # another frame was sent, and is not here
        Beat(Epoch(1, 1), 2, version=-1, digest=5, count=1),  # not all is sent
        Beat(Epoch(1, 1), 2, version=3, digest=5, count=1),  # of another version
    ):
        node.control("b", beat)
    assert node.controls("b", NeedTable) == []


def test_a_whole_table_is_sent_to_who_needs_it(node: NodeDriver) -> None:
    node.control("b", NeedTable(Epoch(1, 1)))
    (frame,) = node.frames("b", TableFrame)
    assert frame.begins
    assert node.reports() == ["healed"]


def test_parts_of_a_table_are_released_when_all_are_stored(node: NodeDriver) -> None:
    """A restart between the parts must get all of them again, to know what is not among them."""
    node.receive("b", TableFrame(2, (route("one"),), begins=True, ends=False))
    node.tick()
    assert node.take(Release) == []
    node.receive("b", TableFrame(2, (route("two"),), ends=True))
    node.tick()
    assert node.take(Release)[-1] == Release("b", Epoch(1, 1), 3)


# -- settlement ------------------------------------------------------------------------------------------


def test_a_message_is_settled_when_all_who_want_it_have_reported_it(node: NodeDriver) -> None:
    node.wanted = {1: frozenset("b")}
    node.receive("a", *messages_of("far", [1]))
    node.tick()
    assert node.controls("a", Ack)[-1].settled == {"far": 0}
    node.control("b", Ack(Epoch(1, 1), 0, reset=1, settled={"far": 1}))
    node.tick()
    assert node.controls("a", Ack)[-1].settled == {"far": 1}
    assert node.node.unsettled() == 1  # until the source says so


def test_reports_of_another_tree_do_not_count(node: NodeDriver) -> None:
    node.wanted = {1: frozenset("b")}
    node.receive("a", *messages_of("far", [1]))
    node.control("b", Ack(Epoch(1, 1), 0, reset=2, settled={"far": 1}))
    node.tick()
    assert node.controls("a", Ack)[-1].settled == {"far": 0}


def test_the_floor_of_own_messages_rises_and_is_told(node: NodeDriver) -> None:
    node.wanted = {7: frozenset("b")}
    node.publish(7)
    node.control("b", Ack(Epoch(1, 1), 0, reset=1, settled={"n": 1}))
    node.tick(1.0)
    assert node.node.floors["n"] == 1
    assert node.controls("b", Beat)[-1].floors == {"n": 1}
    assert node.state.messages == {}


def test_a_broker_that_has_lost_its_state_is_told_of_it(node: NodeDriver) -> None:
    epoch = Epoch(1, 1)
    node.control("a", Opened(epoch, 0, {}, {"n": 41}))
    assert node.reports() == ["lost"]
    node.publish(7)
    assert list(node.state.messages) == [("n", 42)]


# -- the tree --------------------------------------------------------------------------------------------


def test_after_a_reset_unsettled_messages_are_sent_again_in_order(node: NodeDriver) -> None:
    node.wanted = {7: frozenset("ab"), 8: frozenset("ab"), 9: frozenset("ab"), -1: frozenset("ab")}
    node.publish(7, 8)
    node.asked.clear()
    node.topology = node.topology.move("far", "b")
    node.feed(events.TopologyChanged(node.topology))
    node.publish(9)  # while the node waits for tables
    assert node.replies() == [9]
    for link in "ab":
        node.open_outbound(link, {"n": ((1, 2),)} if link == "b" else None)
        node.open_inbound(link)
        node.receive(link, TableFrame(1, begins=True))
    assert node.messages("a") == node.messages("b") == [("n", 1), ("n", 2), ("n", 3)]
    assert [frame.content is None for frame in node.frames("b", MessageFrame)] == [True, True, False]
    assert {a.epoch.edge for a in node.asked if isinstance(a, Send)} == {2}


def test_a_message_that_comes_again_after_a_reset_is_passed_on_without_being_handled(
    node: NodeDriver,
) -> None:
    node.wanted = {1: frozenset("b"), -1: frozenset("b")}
    node.receive("a", *messages_of("far", [1]))
    node.topology = node.topology.move("b", "n").move("far", "n").move("far", "a")
    node.feed(events.TopologyChanged(node.topology))
    node.connect("a", "b")
    node.asked.clear()
    node.receive("a", MessageFrame(MessageKey("far", 1), None))
    (match,) = (action for action in node.asked if isinstance(action, Match))
    assert (match.is_new, match.is_local) == (False, False)
    assert node.messages("b") == [("far", 1)]


def reset(node: NodeDriver) -> None:
    """Change the tree, to one in which the node has the same neighbours."""
    node.topology = node.topology.move("far", "n").move("far", "a")
    node.feed(events.TopologyChanged(node.topology))


def receive_partial(node: NodeDriver, number: int) -> None:
    """Let a message arrive of which parts were cut, and which nobody beyond the node wants."""
    node.receive("a", MessageFrame(MessageKey("far", number), number, is_partial=True))
    assert node.state.messages[MessageKey("far", number)].is_partial


def stores_of(node: NodeDriver, key: tuple[str, int]) -> list[Store]:
    return [a for a in node.asked if isinstance(a, Store) and a.message is not None and a.message.key == key]


@pytest.mark.parametrize("is_partial", [False, True])
def test_a_partial_message_comes_again_after_a_reset_and_is_replaced(
    node: NodeDriver, is_partial: bool
) -> None:
    receive_partial(node, 1)
    node.receive("a", *messages_of("far", [2]))
    reset(node)
    node.asked.clear()
    node.connect("a", "b")
    assert node.controls("a", Opened)[-1].have == {"far": ((2, 2),)}
    node.wanted = {41: frozenset("b")}
    node.asked.clear()
    node.receive("a", MessageFrame(MessageKey("far", 1), 41, is_partial=is_partial))
    (match,) = (action for action in node.asked if isinstance(action, Match))
    assert (match.content, match.is_new, match.is_local) == (41, False, False)
    (store,) = stores_of(node, ("far", 1))
    assert (store.match, store.replaces) == (None, match.token)
    assert store.message is not None
    assert (store.message.is_partial, store.message.links) == (is_partial, frozenset("b"))
    (frame,) = node.frames("b", MessageFrame)
    assert (frame.content, frame.is_partial) == (Content.WHOLE, is_partial)
    assert node.node.duplicates == 0


def test_a_partial_message_that_comes_again_without_content_stays_partial(node: NodeDriver) -> None:
    receive_partial(node, 1)
    reset(node)
    node.connect("a", "b")
    node.wanted = {-1: frozenset("b")}
    node.asked.clear()
    node.receive("a", MessageFrame(MessageKey("far", 1), None))
    (store,) = stores_of(node, ("far", 1))
    assert (store.match, store.replaces) == (None, None)
    assert store.message is not None
    assert store.message.is_partial
    (frame,) = node.frames("b", MessageFrame)
    assert (frame.content, frame.is_partial) == (Content.WHOLE, True)


def test_a_whole_message_is_not_replaced(node: NodeDriver) -> None:
    node.receive("a", *messages_of("far", [1]))
    reset(node)
    node.connect("a", "b")
    node.asked.clear()
    node.receive("a", MessageFrame(MessageKey("far", 1), 1, is_partial=True))
    (match,) = (action for action in node.asked if isinstance(action, Match))
    (store,) = stores_of(node, ("far", 1))
    assert (match.content, store.replaces) == (None, None)
    assert store.message is not None
    assert not store.message.is_partial


def test_a_partial_message_whose_links_are_decided_is_a_duplicate(node: NodeDriver) -> None:
    receive_partial(node, 1)
    node.asked.clear()
    node.receive("a", *messages_of("far", [1]))
    assert node.node.duplicates == 1
    assert not [action for action in node.asked if isinstance(action, Match)]
    assert node.state.messages[MessageKey("far", 1)].is_partial


def test_a_partial_message_that_is_being_matched_at_a_reset_is_replaced(node: NodeDriver) -> None:
    node.answers_matches = False
    node.receive("a", MessageFrame(MessageKey("far", 1), 1, is_partial=True))
    reset(node)
    node.connect("a", "b")
    node.receive("a", MessageFrame(MessageKey("far", 1), 41))
    assert [match.content for match in node.matches] == [1]
    node.wanted = {41: frozenset("b")}
    node.answer_matches()
    assert node.state.messages[MessageKey("far", 1)].is_partial
    (match,) = node.matches
    assert (match.content, match.is_new) == (41, False)
    node.answer_matches()
    assert not node.state.messages[MessageKey("far", 1)].is_partial
    assert [store.replaces for store in stores_of(node, ("far", 1))] == [None, match.token]
    assert [frame.content for frame in node.frames("b", MessageFrame)] == [Content.WHOLE]


def test_only_of_messages_since_the_reset_may_parts_be_cut(node: NodeDriver) -> None:
    node.wanted = {7: frozenset("b"), 8: frozenset("b"), -1: frozenset("b")}
    node.publish(7)
    assert [frame.content for frame in node.frames("b", MessageFrame)] == [Content.STORED]
    reset(node)
    node.asked.clear()
    node.connect("a", "b")
    node.publish(8)
    contents = [(frame.key.number, frame.content) for frame in node.frames("b", MessageFrame)]
    assert contents == [(1, Content.WHOLE), (2, Content.STORED)]


def test_what_does_not_come_again_after_a_reset_is_not_wanted_any_more(node: NodeDriver) -> None:
    node.receive("a", *messages_of("far", [1, 2, 3]))
    node.topology = node.topology.move("b", "a").move("b", "n")
    node.feed(events.TopologyChanged(node.topology))
    node.connect("a", "b")
    node.receive("a", MessageFrame(MessageKey("far", 3), None))
    node.tick()
    assert node.controls("a", Ack)[-1].settled == {"far": 3}


def test_a_leaf_that_joins_changes_no_other_link(node: NodeDriver) -> None:
    node.topology = node.topology.join("c", "n")
    node.feed(events.TopologyChanged(node.topology))
    assert node.node.is_open("a")
    assert not node.node.is_open("c")
    assert node.reports() == []
    node.connect("c")
    node.publish(7)
    assert node.replies() == [7]


def test_an_older_tree_is_ignored(node: NodeDriver) -> None:
    node.feed(events.TopologyChanged(build_tree({"n": None})))
    assert node.node.topology is TREE


def test_messages_of_a_broker_that_has_left_are_sent_on_and_forgotten(node: NodeDriver) -> None:
    node.wanted = {1: frozenset("b"), -1: frozenset("b")}
    node.receive("a", *messages_of("far", [1]))
    assert node.node.unsettled_for("b") == 1
    epoch = next(action.epoch for action in node.asked if isinstance(action, Send))
    node.feed(events.TopologyChanged(TREE.leave("far")))
    assert node.reports() == ["lost"]  # what only it had
    node.tick()
    assert node.node.unsettled() == 1
    node.control("b", Ack(epoch, 100, reset=1))
    node.tick()
    assert node.node.unsettled() == 0


def test_a_broker_that_has_joined_again_uses_new_numbers() -> None:
    tree = TREE.leave("b").join("b", "n")
    node = NodeDriver("b", tree)
    node.feed(events.RoutesChanged(None))
    node.tick(5.0)
    node.publish(7)
    (key,) = node.state.messages
    assert key.number > 2**32
    again = NodeDriver("b", tree, node.state, run=2)
    again.feed(events.RoutesChanged(None))
    again.tick(5.0)
    again.publish(8)
    assert [number for _, number in again.state.messages][-1] == key.number + 1


# -- restarts --------------------------------------------------------------------------------------------


def test_a_restart_goes_on_with_tables_positions_and_unsettled_messages(node: NodeDriver) -> None:
    node.receive("b", TableFrame(2, (route("//title"),)))
    node.wanted = {1: frozenset("b"), 7: frozenset("b")}
    node.receive("a", *messages_of("far", [1]))
    node.publish(7)
    node.tick()
    again = NodeDriver("n", TREE, node.state, run=2)
    assert again.node.table.routes_of("b") == [route("//title")]
    assert again.node.table.unknown_links() == []
    assert again.node.unsettled_for("b") == 2
    assert again.node.positions == {"far": 1, "n": 1}
    again.feed(events.RoutesChanged(None))
    again.open_outbound("b")
    assert again.messages("b") == [("far", 1), ("n", 1)]
    again._sent["a"] = Epoch(1, 1), 2
    again.receive("a", *messages_of("far", [2]))
    assert [match.key for match in again.take(Match)] == [("far", 2)]


def test_a_restart_knows_which_messages_are_partial(node: NodeDriver) -> None:
    node.wanted = {1: frozenset("b"), 2: frozenset("b")}
    receive_partial(node, 1)
    node.receive("a", *messages_of("far", [2]))
    again = NodeDriver("n", TREE, node.state, run=2)
    again.feed(events.RoutesChanged(None))
    again.open_outbound("b")
    sent = [(frame.content, frame.is_partial) for frame in again.frames("b", MessageFrame)]
    assert sent == [(Content.STORED, True), (Content.STORED, False)]
    again.open_inbound("a", Epoch(1, 2))
    assert again.controls("a", Opened)[-1].have == {"far": ((2, 2),)}


def test_a_restart_at_a_reset_lets_partial_messages_come_again(node: NodeDriver) -> None:
    receive_partial(node, 1)
    tree = TREE.move("far", "n").move("far", "a")
    again = NodeDriver("n", tree, node.state, run=2)
    again.feed(events.RoutesChanged(None))
    again.connect("a", "b")
    again.wanted = {41: frozenset("b")}
    again.asked.clear()
    again.receive("a", MessageFrame(MessageKey("far", 1), 41))
    assert [frame.content for frame in again.frames("b", MessageFrame)] == [Content.WHOLE]
    assert not again.state.messages[MessageKey("far", 1)].is_partial


def test_a_table_of_an_edge_that_is_gone_is_not_used_after_a_restart(node: NodeDriver) -> None:
    """Others may be behind the neighbour now; a leaf's own routes stay."""
    node.receive("a", TableFrame(2, (route("//a"),)))
    node.receive("b", TableFrame(2, (route("//b"),)))
    again = Node(node.state, TREE.move("far", "b").move("far", "a"), 2)
    assert again.table.unknown_links() == ["a"]
    assert again.table.routes_of("b") == [route("//b")]
    rejoined = Node(node.state, TREE.leave("b").join("b", "n"), 2)
    assert rejoined.table.unknown_links() == ["b"]


@pytest.mark.parametrize("is_open", [False, True])
def test_an_open_table_of_a_broker_that_becomes_a_leaf_stays_open(node: NodeDriver, is_open: bool) -> None:
    """While it was open, nothing more was told, not even what local subscriptions of the neighbour want."""
    node.receive("a", TableFrame(2, (route("//a"),), is_open=is_open))
    node.topology = TREE.move("far", "b")
    node.feed(events.TopologyChanged(node.topology))
    assert node.node.table.routes_of("a") == [route("//a")]
    assert node.node.table.is_unknown("a") == is_open
    node.connect("a")
    assert not node.node.table.is_unknown("a")


def test_a_state_without_anything_starts() -> None:
    assert Node(NodeState("n"), build_tree({"n": None}), 1).handle(events.Tick(1.0)) != []
