"""Routes of subscriptions: one object for equal ones, one for each stream or block."""

from __future__ import annotations

import copy
import gc
import pickle
from threading import Thread

import pytest

from sapwood.errors import ArgumentError, QueryError
from sapwood.lang.languages import compile_text
from sapwood.lang.pattern import TRUE, Has
from sapwood.lang.query import compile_query
from sapwood.mesh.routing import route as route_module
from sapwood.mesh.routing.route import Route, decode_route, encode_route, routes_of


def of(query: str, *streams: str, namespaces: dict[str, str] | None = None) -> tuple[Route, ...]:
    return routes_of(query, namespaces or {}, "t", streams)


def shown(routes: tuple[Route, ...]) -> list[tuple[str | None, str]]:
    return [(route.stream, str(route.condition)) for route in routes]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("/a//b[@x = 1]", [(None, "a//b[@x = 1]")]),
        ("//a[string-length(.) > 2]", [(None, ".//a")]),
        ("for $a in //a where $a/b = 1 return <r>{$a/c}</r>", [(None, ".//a[b = 1]")]),
        ("S//a->x JOIN{x = y, 1 s} T//b->y", [("S", ".//a"), ("T", ".//b")]),
        ("S//a->x[b->z]/c->v JOIN{x = y, 1 s} //b->y", [("S", ".//a[b and c]"), ("", ".//b")]),
        ("S//a->x JOIN{x = y, 1 s} S//a->y", [("S", ".//a")]),
        ("true()", [(None, "true()")]),
        ("S/a->x/b->y[c->z] JOIN{z = w, 1 s} T//b->w", [("S", "a/b/c"), ("T", ".//b")]),
    ],
)
def test_the_routes_of_a_query(query: str, expected: list[tuple[str | None, str]]) -> None:
    assert shown(of(query)) == expected


def test_a_query_that_is_restricted_to_streams_has_a_route_for_each() -> None:
    assert shown(of("/a", "s", "", "s")) == [("s", "a"), ("", "a")]


def test_a_join_names_its_streams_itself() -> None:
    with pytest.raises(ArgumentError, match="restricted"):
        of("S//a->x JOIN{x = y, 1 s} T//b->y", "S")
    with pytest.raises(ArgumentError, match="several names"):
        routes_of("/a", {}, "t", "stream")


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(QueryError):
        of("/a[")
    with pytest.raises(ArgumentError):
        routes_of("/a", {}, "t", language="sql")


def test_the_language_may_be_given() -> None:
    (route,) = routes_of("//a->b", {}, "t", language="xscl")
    assert (route.stream, str(route.condition)) == ("", ".//a")


def test_names_are_expanded() -> None:
    assert of("//p:a", namespaces={"p": "urn:p"}) == of("//q:a", namespaces={"q": "urn:p"})
    assert of("//a", namespaces={"*": "any"}) != of("//a")
    assert of("//p:a", namespaces={"p": "urn:p"}) != of("//p:a", namespaces={"p": "urn:q"})


def test_equal_routes_are_one_object() -> None:
    (route,) = of("//a[b and c]")
    (other,) = of("//a[c][b]")
    assert route is other
    assert pickle.loads(pickle.dumps(route)) is route
    assert decode_route(encode_route(route)) is route
    assert copy.copy(route) is copy.deepcopy(route) is route
    assert hash(route) == hash(other) and len({route, other}) == 1
    assert Route("t", None, route.condition, exact=False) is route
    different = [
        Route("u", None, route.condition),
        Route("t", "", route.condition),
        Route("t", "s", route.condition),
        Route("t", None, TRUE),
    ]
    assert len({route, *different}) == 5 and len({each.key for each in (route, *different)}) == 5
    assert route != "a route"


def test_routes_are_immutable() -> None:
    (route,) = of("//a")
    with pytest.raises(AttributeError):
        route.stream = "s"
    with pytest.raises(AttributeError):
        del route.stream


def test_routes_that_nobody_uses_are_freed() -> None:
    route = Route("nobody's", None, Has(compile_query("//rare").paths[0]))
    key = route.key
    assert key in route_module._ROUTES
    del route
    gc.collect()
    assert key not in route_module._ROUTES


def test_whether_a_route_is_exact() -> None:
    def is_exact(query: str, tenant: str) -> bool:
        return routes_of(query, {}, tenant)[0].exact

    assert is_exact("//a[b]", "exact 1")
    assert is_exact("for $a in //a return <r/>", "exact 2")
    assert is_exact("SELECT * FROM S//a", "exact 3")
    assert not is_exact("//a[string-length(.) > 2]", "exact 4")
    assert not is_exact("for $a in //a, $b in //b where $a or $b/c return <r/>", "exact 5")
    assert not is_exact("S//a->x JOIN{x = y, 1 s} T//b->y", "exact 6")
    (route,) = routes_of("//a[string-length(.) > 2]", {}, "exact 7")
    assert encode_route(route)[-1:] == b"\0"


def test_repeated_queries_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count(query: str, *args: object) -> object:
        calls.append(query)
        return compile_text(query, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(route_module, "compile_text", count)
    query, long = "boolean(//remembered[@once])", f"boolean(//remembered[@x = '{'y' * 2_000}'])"
    for _ in range(3):
        of(query)
        of(long)
    assert calls.count(query) == 1
    assert calls.count(long) == 3  # long texts are not kept


def test_threads_get_one_object() -> None:
    found: list[list[Route]] = []

    def make() -> None:
        found.append([Route("threads", str(n), TRUE) for n in range(500)])

    threads = [Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one is other for made in found for one, other in zip(made, found[0], strict=True))
