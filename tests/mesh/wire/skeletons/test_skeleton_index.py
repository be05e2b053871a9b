"""What is told from skeletons is what the messages say: definite wants are, and impossible ones are not.

lxml decides which queries a message matches; of exact ones, what the skeleton says has to agree.
"""

from __future__ import annotations

from random import Random

import msgpack  # type: ignore[import-untyped, unused-ignore]
import pytest

from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.mesh.routing.route import Route, routes_of
from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary
from sapwood.mesh.wire.skeletons.message_skeleton import collect_paths, read_skeleton
from sapwood.mesh.wire.skeletons.skeleton import Skeleton, SkeletonError, TestedNames
from sapwood.mesh.wire.skeletons.skeleton_index import Masks, SkeletonIndex
from tests.mesh.routing.test_necessary_routes import evaluator
from tests.support.oracles import lxml_oracle

LINK, OTHER, LOCAL = 0, 1, 2


def route(query: str, stream: str | None = None) -> Route:
    streams = () if stream is None else (stream,)
    (made,) = routes_of(query, {"f": "urn:finance"}, "t", streams)
    return made


def decide(
    index: SkeletonIndex,
    text: str,
    stream: str = "",
    dictionary: WireDictionary | None = None,
    tested: TestedNames | None = None,
) -> Masks | None:
    known = dictionary or WireDictionary((), collect_paths([text.encode()], Limits()))
    skeleton = read_skeleton(Message(text.encode()), Limits(), known, tested or index.tested)
    assert skeleton is not None
    return index.decide(skeleton, known, stream)


@pytest.mark.parametrize(
    ("query", "text", "definite", "possible"),
    [
        ("/a/b", "<a><b/></a>", True, True),
        ("/a/b", "<a><c><b/></c></a>", False, False),
        ("//b", "<a><c><b/></c></a>", True, True),
        ("/a[@x]", "<a x='1'/>", True, True),
        ("/a[@x]", "<a y='1'/>", False, False),
        ("//b[@x = 2]", "<a><b x='1'/><b x=' 2.0 '/></a>", True, True),
        ("//b[@x = 2]", "<a><b x='1'/><c x='2'/></a>", False, False),
        ("//b[@x = '<&\"\n']", "<a><b x='&lt;&amp;&quot;&#10;'/></a>", True, True),
        ("//f:q/@f:v", "<q xmlns='urn:finance' xmlns:f='urn:finance' f:v='1'/>", True, True),
        ("//f:q/@f:v", "<q f='1' v='1'/>", False, False),
        ("//@xml:lang", "<a xml:lang='de'/>", True, True),
        # necessary only: branches, and tests of text
        ("/a[b]/c", "<a><b/><c/></a>", False, True),
        ("/a[b]/c/d", "<a><b/><c/></a>", False, False),
        ("//a[@x = 1]/c", "<a><a x='1'/><c/></a>", False, True),
        ("//a[@x = 1]/c", "<a><a x='2'/><c/></a>", False, False),
        ("//b[. = 'x']", "<a><b>x</b></a>", False, True),
        ("//b[. = 'x']", "<a><b>y</b></a>", False, False),
        ("//b[. = 'xy']", "<a><b>x<c/>y</b></a>", False, True),
        ("//b[text() = '20']", "<a><b>20<!-- -->07</b></a>", False, True),
        ("//b[. = '']", "<a><b/></a>", False, True),
        ("//*[. = 'x']", "<a><b>y</b></a>", False, True),
        ("//@*", "<a/>", False, True),
        ("not(//b)", "<a><b/></a>", False, True),
        ("/a/b[2]", "<a><b/></a>", False, True),
        ("/a/b[2]", "<a><c/></a>", False, False),
        ("/a/b | /a/c[@x]", "<a><c x=''/></a>", True, True),
        ("true()", "<a/>", True, True),
    ],
)
def test_what_is_told(query: str, text: str, definite: bool, possible: bool) -> None:
    index = SkeletonIndex()
    index.add(LINK, route(query))
    assert decide(index, text) == Masks(int(definite), int(possible))
    assert decide(index, text) == Masks(int(definite), int(possible))  # from what is remembered
    assert decide(index, text, dictionary=WireDictionary(())) == Masks(int(definite), int(possible))


def test_links_and_streams_are_told_apart() -> None:
    index = SkeletonIndex(never_definite=1 << LOCAL)
    index.add(LINK, route("/a", "news"))
    index.add(OTHER, route("/a"))
    index.add(LOCAL, route("/a/b"))
    assert decide(index, "<a/>", "news") == Masks(3, 3)
    assert decide(index, "<a/>", "other") == Masks(2, 2)
    assert decide(index, "<a><b/></a>") == Masks(2, 6)


def test_removed_routes_are_gone() -> None:
    index = SkeletonIndex()
    for _ in range(2):
        index.add(LINK, route("/a[@x]"))
    index.add(OTHER, route("/a[@x]"))
    index.remove(LINK, route("/a[@x]"))
    assert decide(index, "<a x=''/>") == Masks(3, 3)
    index.remove(LINK, route("/a[@x]"))
    index.remove(LINK, route("/a[@x]"))
    assert decide(index, "<a x=''/>") == Masks(2, 2)
    index.remove(OTHER, route("/a[@x]"))
    assert decide(index, "<a x=''/>") == Masks(0, 0)
    assert (len(index), index.tested) == (0, TestedNames(frozenset(), frozenset()))
    index.add(LINK, route("/b"))
    assert decide(index, "<b/>") == Masks(1, 1)


def test_a_skeleton_without_what_is_tested_tells_nothing() -> None:
    index = SkeletonIndex()
    index.add(LINK, route("/a[@x]"))
    assert decide(index, "<a x='1'/>", tested=TestedNames(frozenset(), frozenset())) is None
    assert decide(index, "<a x='1'/>", tested=TestedNames(frozenset({"x", "y"}), frozenset())) == Masks(1, 1)


@pytest.mark.parametrize(
    "fields",
    [
        [True, [-1, "a b<"], [0], []],
        [True, [-1, ""], [0], []],
        [True, [-1, "a", 0.5, "b"], [0], []],
        [True, [-1, "a"], [0.0], []],
        [True, [-1, "a"], [0], [0, -1, "\0"]],
        [True, [-1, "a"], [0], [0.0, -1, "x"]],
        [True, [part for n in range(600) for part in (n - 1, "a")], [599], []],
    ],
)
def test_a_skeleton_that_is_of_no_message_is_refused(fields: list[object]) -> None:
    index = SkeletonIndex()
    index.add(LINK, route("//b[. = 1]"))
    skeleton = Skeleton(b"", index.tested, msgpack.packb(fields))
    with pytest.raises(SkeletonError):
        index.decide(skeleton, WireDictionary(()), "")


def check(routes: list[Route], texts: list[tuple[str, str]], dictionary: WireDictionary) -> tuple[int, int]:
    """Compare what skeletons say with the messages; return how many were decided, and all."""
    decided = 0
    index = SkeletonIndex()
    for route in routes:
        index.add(LINK, route)
    for text, stream in texts:
        found = evaluator(text)
        true = any(route.stream in (None, stream) and found.holds(route.condition) for route in routes)
        masks = decide(index, text, stream, dictionary)
        assert masks is not None
        if masks.definite:
            assert true, (routes, text)
        if not masks.possible:
            assert not true, (routes, text)
        decided += masks.definite == masks.possible
    return decided, len(texts)


def test_random_queries_and_messages() -> None:
    rng = Random(21)
    texts = [lxml_oracle.random_document(rng) for _ in range(60)]
    dictionary = WireDictionary((), collect_paths([text.encode() for text in texts[:30]], Limits()))
    decided = total = 0
    for number in range(400):
        query = lxml_oracle.random_query(rng, native=number % 2 == 0)
        routes = list(routes_of(query, lxml_oracle.NAMESPACES, "t"))
        some, all_of_them = check(routes, [(text, "") for text in texts], dictionary)
        decided += some
        total += all_of_them
    assert total / 4 < decided < total  # so that both answers were compared
