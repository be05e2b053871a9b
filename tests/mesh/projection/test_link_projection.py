"""What is cut from the messages of a link: when it is known, while it pays, and why."""

from __future__ import annotations

import pytest

from sapwood.engine.limits import Limits
from sapwood.mesh.projection.link_projection import ALWAYS, AUTO, NEVER, LinkProjection
from sapwood.mesh.routing.read_paths import MOST_BINDINGS
from sapwood.mesh.routing.route import Route, routes_of

GIFTS = "for $i in //item where $i/@gift return <got>{$i/@sku}{$i/note}</got>"
TOTALS = "for $o in /order return <o>{$o/total}</o>"
ALL = "for $o in /order return <o>{$o/total}{$o/item}{$o/text}</o>"


def order(items: int, gifts: int, text: int = 0) -> bytes:
    lines = [
        b"<item sku='%d'%b><note>about %d</note></item>" % (i, b" gift='y'" if i < gifts else b"", i)
        for i in range(items)
    ]
    return b"<order>" + b"".join(lines) + b"<text>" + b"x" * text + b"</text><total>1</total></order>"


def routes(*queries: str, streams: tuple[str, ...] = ()) -> list[Route]:
    return [route for query in queries for route in routes_of(query, {}, "t", streams)]


class Bench:
    """A projection with a clock that is set, and links that are known or not."""

    def __init__(self, mode: str) -> None:
        self.now = 0.0
        self.known = True
        self.seconds_per_byte: float | None = None
        self.projection = LinkProjection(
            mode, Limits(), lambda link: self.known, lambda link: self.seconds_per_byte, lambda: self.now
        )

    def want(self, *queries: str, streams: tuple[str, ...] = ()) -> None:
        self.projection.change("b", routes(*queries, streams=streams), [])

    def drop(self, *queries: str) -> None:
        self.projection.change("b", [], routes(*queries))

    def send(self, body: bytes, stream: str = "s") -> bytes:
        plan = self.projection.choose_plan("b", "t", stream)
        return body if plan is None else self.projection.cut("b", "t", stream, body, plan)

    def why(self, stream: str = "s") -> str:
        return self.projection.explain("b", "t", stream).reason


def test_nothing_is_cut_while_it_is_not_known_what_is_wanted() -> None:
    bench = Bench(ALWAYS)
    bench.want(TOTALS)
    bench.known = False
    assert bench.send(order(3, 0)) == order(3, 0)
    assert bench.why() == "it is not known yet what is wanted beyond"
    bench.known = True
    assert bench.send(order(3, 0)) == b"<order><total>1</total></order>"
    assert bench.why() == "nobody beyond reads the rest"


def test_nothing_is_cut_where_it_is_switched_off() -> None:
    bench = Bench(NEVER)
    bench.want(TOTALS)
    assert bench.send(order(3, 0)) == order(3, 0)
    assert bench.why() == "mesh.project is never"


def test_a_filter_wants_whole_messages_of_its_stream() -> None:
    bench = Bench(ALWAYS)
    bench.want(TOTALS)
    bench.want("/order", streams=("whole",))
    assert bench.send(order(3, 0)) != order(3, 0)
    assert bench.send(order(3, 0), "whole") == order(3, 0)
    assert bench.why("whole") == "somebody beyond reads whole messages"


def test_a_plan_grows_at_once_and_shrinks_later() -> None:
    bench = Bench(ALWAYS)
    bench.want(TOTALS)
    assert bench.send(order(2, 1)) == b"<order><total>1</total></order>"
    bench.want(GIFTS)
    both = bench.send(order(2, 1))
    assert b"about 0" in both and b"about 1" not in both
    bench.drop(GIFTS)
    assert bench.send(order(2, 1)) == both
    bench.now = 2.0
    assert bench.send(order(2, 1)) == b"<order><total>1</total></order>"


def test_what_saves_little_is_not_done_but_tried_again() -> None:
    bench = Bench(AUTO)
    bench.want(TOTALS, "for $o in /order return <o>{$o/text}</o>")
    for _ in range(8):
        assert len(bench.send(order(1, 0, 1_000))) < len(order(1, 0, 1_000))
    sent = [bench.send(order(30, 0)) for _ in range(250)]
    cut = [len(each) < len(order(30, 0)) for each in sent]
    assert not any(cut[:90])
    assert cut.index(True) < 105, "one in a hundred is tried"


def test_messages_that_have_become_worth_it_are_cut() -> None:
    bench = Bench(AUTO)
    bench.want(TOTALS, "for $o in /order return <o>{$o/text}</o>")
    for _ in range(8):
        bench.send(order(1, 0, 1_000))
    assert bench.why() == "only 4% of the bytes would be cut"
    sent = [len(bench.send(order(30, 0))) < len(order(30, 0)) for _ in range(1_000)]
    assert all(sent[-50:])
    assert bench.why() == "nobody beyond reads the rest"


def test_what_takes_longer_than_it_saves_is_not_done() -> None:
    bench = Bench(AUTO)
    bench.want(TOTALS)
    bench.seconds_per_byte = 1e-12
    for _ in range(8):
        bench.send(order(9, 0))
    assert bench.send(order(9, 0)) == order(9, 0)
    assert bench.why().startswith("it takes ") and "µs on the link" in bench.why()
    bench.seconds_per_byte = 1.0
    assert bench.send(order(9, 0)) != order(9, 0)


@pytest.mark.parametrize(("gifts", "is_selected"), [(2, True), (38, False)])
def test_bindings_are_evaluated_where_they_save_enough(gifts: int, is_selected: bool) -> None:
    bench = Bench(AUTO)
    bench.want(GIFTS)
    body = order(40, gifts, 4_000)
    for _ in range(8):
        assert b"about 39" not in bench.send(body)
    last = bench.send(body)
    assert (b"about 39" not in last) == is_selected
    assert len(last) < len(body) - 4_000
    reads = bench.projection.explain("b", "t", "s").reads
    assert reads == (
        ["//item[@gift]", "//item[@gift]/note//node()"] if is_selected else ["//item", "//item/note//node()"]
    )


def test_many_bindings_are_not_evaluated() -> None:
    bench = Bench(AUTO)
    bench.want(
        *[f"for $i in //item where $i/@sku = '{n}' return <i>{{$i}}</i>" for n in range(MOST_BINDINGS + 1)]
    )
    for _ in range(20):
        assert b"about 39" in bench.send(order(40, 0, 10_000))
    assert bench.projection.explain("b", "t", "s").reads == ["//item//node()"]


def test_a_message_is_cut_further_only_by_what_the_former_plan_kept() -> None:
    bench = Bench(ALWAYS)
    bench.want(GIFTS, TOTALS)
    wide = bench.projection.find_plan("b", "t", "s")
    assert wide is not None
    bench.drop(TOTALS)
    bench.now = 2.0
    narrow = bench.projection.find_plan("b", "t", "s")
    assert narrow is not None
    assert bench.projection.choose_plan("b", "t", "s", wide) is narrow
    assert bench.projection.choose_plan("b", "t", "s", narrow) is None
    bench.want(ALL)
    assert bench.projection.choose_plan("b", "t", "s", narrow) is None
