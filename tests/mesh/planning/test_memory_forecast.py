"""Samples for the memory of a broker, and the estimate from what they take."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sapwood.mesh.core.tables.route_table import PART
from sapwood.mesh.core.topology import build_tree
from sapwood.mesh.planning.memory_forecast import EXCHANGE_BYTES, NodeContents, NodePart, collect_contents
from sapwood.mesh.planning.placement import AS_IT_IS, Placement
from sapwood.mesh.planning.planned_subscription import plan_subscription
from sapwood.serve.mesh.memory_probe import ProbeError, measure_parts


def measure_by_count(parts: Sequence[NodePart]) -> list[int]:
    """1,000 bytes for a subscription, 10 for one of those that repeat a query, 2,000 for a route."""
    *first, repeated = parts
    return [
        1_000 * len(part.subscriptions) + 2_000 * sum(map(len, part.routes.values())) for part in first
    ] + [10 * len(repeated.subscriptions)]


def make_contents(local: int, repeated: int, routes: int) -> NodeContents:
    subscriptions = [plan_subscription(str(n), f"/a[@n = '{n}']") for n in range(local)]
    subscriptions += [plan_subscription(f"again {n}", f"/a[@n = '{n % local}']") for n in range(repeated)]
    wanted = [plan_subscription("", f"/b[@n = '{n}']").routes[0] for n in range(routes)]
    return NodeContents(subscriptions, {"other": wanted})


def test_all_is_measured_if_there_is_little() -> None:
    contents = make_contents(100, 50, 200)
    held = 100 * 1_000 + 50 * 10 + 200 * 2_000
    assert contents.forecast_bytes(measure_by_count) == held + 200 * EXCHANGE_BYTES
    assert NodeContents([], {"other": []}).forecast_bytes(measure_by_count) == 0


def test_the_rest_is_estimated() -> None:
    registered = 0

    def measure(parts: Sequence[NodePart]) -> list[int]:
        nonlocal registered
        registered += sum(len(part.routes.get("other", ())) + len(part.subscriptions) for part in parts)
        return measure_by_count(parts)

    contents = make_contents(4_000, 3_000, 8_000)
    expected = 4_000 * 1_000 + 3_000 * 10 + 8_000 * 2_000 + PART * EXCHANGE_BYTES
    assert contents.forecast_bytes(measure, sample=1_000) == pytest.approx(expected, rel=0.05)
    assert registered < 2_000


def test_contents_are_local_subscriptions_and_routes_of_each_side() -> None:
    queries = ["/a", "/b", "/c", "/c"]
    subscriptions = [plan_subscription(str(n), query) for n, query in enumerate(queries)]
    placement = Placement(AS_IT_IS, [0, 1, 2, 3])
    tree = build_tree({"a": None, "b": "a", "c": "b", "d": "b"})
    found = collect_contents(tree, subscriptions, placement)
    conditions = {
        name: {link: sorted(str(route.condition) for route in routes) for link, routes in node.routes.items()}
        for name, node in found.items()
    }
    assert conditions == {
        "a": {"b": ["b", "c"]},
        "b": {"a": ["a"], "c": ["c"], "d": ["c"]},
        "c": {"b": ["a", "b", "c"]},
        "d": {"b": ["a", "b", "c"]},
    }
    assert [node.count_routes() for node in found.values()] == [2, 2, 3, 3]


@pytest.mark.slow
def test_the_probe_measures_a_real_engine() -> None:
    contents = make_contents(2_000, 0, 4_000)
    halves = [
        NodePart(contents.subscriptions[:1_000], {"other": contents.routes["other"][:2_000]}),
        NodePart(contents.subscriptions[1_000:], {"other": contents.routes["other"][2_000:]}),
        NodePart([], {}),
    ]
    first, second, nothing = measure_parts(halves)
    assert 2_000_000 < first < 20_000_000
    assert second == pytest.approx(first, rel=0.5)
    assert nothing < 500_000


def test_a_probe_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ProbeError, match="--no-memory"):
        measure_parts([NodePart([], {})])
