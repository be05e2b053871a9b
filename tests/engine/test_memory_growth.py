"""Caches between messages are bounded by their memory, whatever the names and lengths of what they hold."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from sapwood import Broker, Matcher
from sapwood.engine.automaton import dataguide
from sapwood.join import output
from sapwood.join.state.message_state import StoredMessage
from tests.support.memory import held_by

pytestmark = pytest.mark.slow

ROOM = 250_000
JOIN = "SELECT <r>{$x}{$y/k}</r> FROM A//a->x[k->v] JOIN{v = w, INF} B//a->y[k->w]"

SHAPES: dict[str, Callable[[int], str]] = {
    "tiny": lambda i: f"<a><k>{i}</k></a>",
    "elements": lambda i: f"<a><k>{i}</k>" + "".join(f"<b><c>x{j}</c></b>" for j in range(50)) + "</a>",
    "empty elements": lambda i: f"<a><k>{i}</k>{'<b/>' * 200}</a>",
    "attributes": lambda i: f"<a><k>{i}</k>" + "".join(f"<b u='{i}' v='{j}'/>" for j in range(50)) + "</a>",
    "text": lambda i: f"<a><k>{i}</k><t>{str(i) * 1_000}</t></a>",
    "namespaces": lambda i: f"<a><k>{i}</k>" + "<p:b xmlns:p='u'/>" * 50 + "</a>",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_trees_of_joined_messages_take_no_more_than_their_room(
    shape: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_CACHE_BYTES", ROOM)
    broker = Broker(lateness=1e9)
    broker.subscribe("q", JOIN)
    for i in range(120):
        broker.publish(shape(i), ("a", i), stream="A", time=i)
    cache = broker.network_of_joins._cache
    tracemalloc.start()
    for i in range(120):
        [delivery] = broker.publish(shape(i), ("b", i), stream="B", time=i)
        assert delivery.body
    del delivery
    assert 1 < len(cache._loaded) < 120
    gc.collect()
    with_trees = tracemalloc.get_traced_memory()[0]
    cache._loaded.clear()
    cache._last = None
    gc.collect()
    taken = with_trees - tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert ROOM / 3 < taken < 1.4 * ROOM


def test_caches_of_a_message_tree_count_towards_its_memory() -> None:
    """Of one message that meets many queries, slices, answers and ways are kept; the count follows."""
    broker = Broker(lateness=1e9)
    for i in range(40):
        broker.subscribe(
            i, f"SELECT <r>{{$x/b[{i + 1}]}}</r> FROM A//a->x[k->v] JOIN{{v = w, INF}} B//a[k->w]"
        )
    broker.publish("<a><k>1</k>" + "<b>x</b>" * 50 + "</a>", 1, stream="A", time=1)
    cache = broker.network_of_joins._cache
    record = StoredMessage(1, "A", 1.0, 0, b"<a><k>1</k>" + b"<b>x</b>" * 50 + b"</a>", None)
    before = cache.load(record).bytes
    [loaded] = cache._loaded.values()
    for delivery in broker.publish("<a><k>1</k></a>", 2, stream="B", time=1):
        assert delivery.body
    cache.load(record)
    assert loaded.bytes > before
    assert cache._bytes == sum(loaded.counted for loaded in cache._loaded.values())


def with_attributes(i: int) -> str:
    return f"<a><b n{i}='1' m{i}='1'/></a>"


NAMES: dict[str, tuple[str, Callable[[int], str]]] = {
    "elements": ("for $x in //b return <r>{$x}</r>", lambda i: f"<a><b><n{i}/><m{i}/></b></a>"),
    "roots": ("for $x in //b return <r>{$x}</r>", lambda i: f"<n{i}><m{i}><b/></m{i}></n{i}>"),
    "all elements": ("for $x in //* return <r>{$x}</r>", lambda i: f"<a><b><n{i}/><m{i}/></b></a>"),
    "attributes": ("for $x in //b where $x/@k = 1 return <r>{$x}</r>", with_attributes),
    "all attributes": ("for $x in //b[@* = 2] return <r>{$x}</r>", with_attributes),
    "namespaces": ("for $x in //b return <r>{$x}</r>", lambda i: f"<a xmlns='urn:{i}'><b/></a>"),
}  # fmt: skip


@pytest.mark.parametrize(("query", "message"), NAMES.values(), ids=NAMES.keys())
def test_ever_new_names_take_no_memory(
    query: str, message: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataguide, "_MAX_OTHERS", 200)
    broker = Broker()
    broker.subscribe("q", query)
    for i in range(500):
        broker.publish(message(i))
    before = held_by(broker.filters.index.automaton)
    for i in range(500, 3_500):
        broker.publish(message(i))
    assert held_by(broker.filters.index.automaton) < before + 20_000


def test_names_that_were_dropped_are_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a query mentions them by then."""
    monkeypatch.setattr(dataguide, "_MAX_OTHERS", 3)
    matcher = Matcher()
    matcher.add_many([("b", "//b"), ("k", "//*[@k = 1]"), ("any", "//*[@* = 2]")])
    for i in (*range(10), *range(10)):
        matcher.add(("n", i), f"//n{i}/m[@l{i} = 1]")
        for n in range(10):
            message = f"<a><n{n}><m k='1' l{n}='1' o='{n}'><b/></m></n{n}></a>"
            known = {("n", n)} if ("n", n) in matcher else set()
            assert set(matcher.match(message)) == {"b", "k", *known, *(["any"] if n == 2 else [])}
        matcher.remove(("n", i))


def test_queries_that_come_and_go_leave_nothing_behind() -> None:
    def churn(broker: Broker, numbers: range) -> None:
        for i in numbers:
            broker.subscribe(("f", i), f"/a/b[@k = {i}]/c{i}")
            broker.subscribe(("t", i), f"for $x in /a{i}/b where $x/@k{i} = 1 return <r>{{$x/c{i}}}</r>")
            broker.publish("<a><b k='3'><c/></b></a>")
            broker.unsubscribe(("f", i))
            broker.unsubscribe(("t", i))

    broker = Broker()
    broker.subscribe("stays", "/a")
    churn(broker, range(300))
    before = held_by(broker)
    churn(broker, range(300, 800))
    assert held_by(broker) < before + 50_000
