"""A workload of real queries and documents, whose answers are those of a `Broker` and of the real routes.

    matches    one process with all queries and no mesh: what has to be delivered
    holds      the routes' conditions, after the way that they make between brokers: what may be forwarded

A join is delivered when several messages are at its host. So a document counts as a match of a join if it
satisfies one of its blocks, which is written beside it as a plain filter.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

from sapwood.broker import Broker
from sapwood.engine import Matcher
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.errors import MessageError
from sapwood.mesh.core import frames
from sapwood.mesh.routing.route import Route, decode_route, encode_route, routes_of

NAMESPACES = {"f": "urn:finance", "n": "urn:news"}
TENANT = "simulation"


@dataclass(frozen=True, slots=True)
class SimDocument:
    """A document, with the stream that it is published to."""

    text: str
    stream: str = ""


@dataclass(frozen=True, slots=True)
class SimQuery:
    """A query; for a join, what its blocks want of single documents."""

    text: str
    blocks: tuple[tuple[str, str], ...] = ()
    """of a join: stream, and a filter"""


QUERIES: tuple[SimQuery, ...] = (
    # paths and comparisons
    SimQuery("/nitf/body"),
    SimQuery("//title"),
    SimQuery("//order[@id]"),
    SimQuery("//order[total > 100]"),
    SimQuery("//order[@currency = 'CHF']/total"),
    SimQuery("//item[@qty = 2]"),
    SimQuery("//item[@qty != 2]"),
    SimQuery("//a//b[c]"),
    SimQuery("//*[@urgent = 'yes']"),
    SimQuery("//title[contains(., 'merger')]"),
    SimQuery("//title[starts-with(., 'Storm')]"),
    SimQuery("//year[. = 2007]"),
    SimQuery("/order[item/@sku = 'A1' or item/@sku = 'B2']"),
    # equal conditions, so that brokers share routes
    SimQuery("//order[@id] "),
    SimQuery("//title | //title"),
    # negations
    SimQuery("//order[not(item)]"),
    SimQuery("//order[not(total > 100)]"),
    SimQuery("//order[not(item[not(@qty = 2)])]"),
    SimQuery("not(//title)"),
    SimQuery("//a[not(b[c = 1 or @x])]"),
    SimQuery("/nitf[not(head/title = 'Flood')]/body"),
    # positions and counts
    SimQuery("//item[2]"),
    SimQuery("//item[@qty = 2][1]/@sku"),
    SimQuery("//item[last()]/@gift"),
    SimQuery("count(//item) = 2"),
    # what only lxml decides: the routes are weaker than the queries
    SimQuery("//order[count(item) > 1]"),
    SimQuery("//title[string-length(.) > 12]"),
    SimQuery("//order[sum(item/@qty) > 3]"),
    SimQuery("//b[c = ../@x]"),
    SimQuery("//item[@sku = preceding-sibling::item/@sku]"),
    # namespaces
    SimQuery("//f:quote"),
    SimQuery("//f:quote[f:bid > 10]/@f:venue"),
    SimQuery("//n:*[f:quote]"),
    SimQuery("//quote"),
    # transformations
    SimQuery("for $o in //order where $o/total > 50 return <due>{$o/total}</due>"),
    SimQuery("for $i in //item where $i/@qty = 2 return <pair sku='{$i/@sku}'/>"),
    SimQuery("for $o in //order, $i in $o/item where $i/@gift return <gift>{$o/@id}{$i/@sku}</gift>"),
    SimQuery("for $t in /nitf/head/title return $t"),
    # joins
    SimQuery(
        "orders/order[@id->i] FOLLOWED BY{i = j, 1 day} payments/payment[@for->j]",
        (("orders", "/order[@id]"), ("payments", "/payment[@for]")),
    ),
    SimQuery(
        "orders//order[@currency = 'CHF'][@id->i] JOIN{i = j, 1 h} orders//order[not(item)][@id->j]",
        (("orders", "//order[@currency = 'CHF'][@id]"), ("orders", "//order[not(item)][@id]")),
    ),
    SimQuery("FROM payments//payment[amount > 20]", (("payments", "//payment[amount > 20]"),)),
)

DOCUMENTS: tuple[SimDocument, ...] = (
    SimDocument("<nitf><head><title>Storm over Basel</title></head><body/></nitf>"),
    SimDocument("<nitf><head><title>Flood</title></head><body><p>water</p></body></nitf>"),
    SimDocument("<nitf urgent='yes'><head><title>A merger</title></head><body/></nitf>"),
    SimDocument("<nitf><head/></nitf>"),
    SimDocument("<nitf><head><title/></head><body urgent='no'/></nitf>", "news"),
    SimDocument("<nitf><head><title>Storm</title><title>Flood</title></head><body/></nitf>", "news"),
    SimDocument("<feed><title>quarterly merger results</title><year> 2007 </year></feed>"),
    SimDocument("<feed><year>2007.0</year><year>2008</year></feed>"),
    SimDocument("<feed><year>20<!-- split -->07</year></feed>"),
    SimDocument("<feed><year>NaN</year></feed>"),
    SimDocument("<feed><year/></feed>"),
    SimDocument("<order id='1' currency='CHF'><total>120</total><item sku='A1' qty='2'/></order>", "orders"),
    SimDocument("<order id='2' currency='EUR'><total>99.5</total></order>", "orders"),
    SimDocument(
        "<order id='3'><total>100</total><item sku='B2' qty='2.0'/><item sku='B2'/></order>", "orders"
    ),
    SimDocument(
        "<order><item sku='C3' qty='1'/><item sku='C3' qty='2'/><item gift='yes'/></order>", "orders"
    ),
    SimDocument("<order id='5' currency='CHF'/>", "orders"),
    SimDocument("<order id='6'><total>n/a</total><item qty='3' gift='no'/></order>", "orders"),
    SimDocument("<order id='7' urgent='yes'><total>1e2</total><item qty=' 2 '/></order>", "orders"),
    SimDocument("<order id='8'><total>500</total><item sku='A1' qty='9'/></order>"),
    SimDocument("<batch><order id='9'/><order><total>60</total><item sku='D' qty='2'/></order></batch>"),
    SimDocument("<batch><order><item qty='2'/><item qty='2'/></order><title>both pairs</title></batch>"),
    SimDocument("<payment for='1'><amount>120</amount></payment>", "payments"),
    SimDocument("<payment for='2'><amount>20</amount></payment>", "payments"),
    SimDocument("<payment><amount>21</amount></payment>", "payments"),
    SimDocument("<payment for='3'><amount>30</amount></payment>"),
    SimDocument("<a><b><c>1</c></b></a>"),
    SimDocument("<a><b x='1'><c>2</c></b></a>"),
    SimDocument("<a><x><b><c/></b></x><b/></a>"),
    SimDocument("<a x='1'><b><c>1</c></b></a>"),
    SimDocument("<a/>"),
    SimDocument("<r><a><b/></a><a><b><c>1</c></b></a></r>"),
    SimDocument("<f:quote xmlns:f='urn:finance' f:venue='XSWX'><f:bid>12</f:bid></f:quote>", "quotes"),
    SimDocument(
        "<quote xmlns='urn:finance' xmlns:g='urn:finance' g:venue='X'><bid>9</bid></quote>", "quotes"
    ),
    SimDocument("<n:item xmlns:n='urn:news'><q:quote xmlns:q='urn:finance'/></n:item>", "quotes"),
    SimDocument("<quote><bid>12</bid></quote>", "quotes"),
    SimDocument("<item qty='2' sku='Z'/>"),
    SimDocument("<items><item qty='1'/><item qty='2' sku='Y' gift='yes'/></items>"),
    # not well-formed: no broker accepts these
    SimDocument("<order id='1'><total>120</order>", "orders"),
    SimDocument("<title>merger"),
    SimDocument("no element"),
)


class BrokerWorkload:
    """Queries and documents as tables of who matches what."""

    def __init__(
        self, queries: Sequence[SimQuery] = QUERIES, documents: Sequence[SimDocument] = DOCUMENTS
    ) -> None:
        self.queries = len(queries)
        self.documents = len(documents)
        self._refused = frozenset(n for n, document in enumerate(documents) if not _is_accepted(document))
        self._matching = _find_matches(queries, documents, self._refused)
        self._routes = [self._make_routes(query) for query in queries]
        self._streams = [document.stream for document in documents]
        self._evaluators = {
            number: _read(document)
            for number, document in enumerate(documents)
            if number not in self._refused
        }
        self._hits: dict[int, int] = {}
        """by the key of a route, the documents of which it holds, as bits"""
        self._known: set[int] = set()
        self._holding: list[list[int]] = [[] for _ in documents]
        for routes in self._routes:
            for route in routes:
                self.learn(route)

    def _make_routes(self, query: SimQuery) -> tuple[Route, ...]:
        """Return the routes of a query, as other brokers get them."""
        return tuple(decode_route(encode_route(r)) for r in routes_of(query.text, NAMESPACES, TENANT))

    def matching(self, document: int) -> Collection[int]:
        """Return the queries that a document matches."""
        return self._matching[document]

    def routes(self, query: int) -> tuple[frames.Route, ...]:
        """Return necessary conditions of a query."""
        return self._routes[query]

    def holding(self, document: int) -> Collection[int]:
        """Return the keys of the routes whose condition holds of a document."""
        return self._holding[document]

    def learn(self, route: frames.Route) -> None:
        """Find out of which documents a route holds that a node has made."""
        if route.key not in self._known:
            assert isinstance(route, Route)
            self._known.add(route.key)
            (hits,) = self.find_hits([decode_route(encode_route(route))])
            for document, holding in enumerate(self._holding):
                if hits >> document & 1:
                    holding.append(route.key)

    def find_hits(self, routes: Sequence[Route]) -> list[int]:
        """Return, for each route, the documents of which it holds, as bits."""
        for route in routes:
            if route.key not in self._hits:
                self._hits[route.key] = sum(
                    1 << number
                    for number, message in self._evaluators.items()
                    if route.stream in (None, self._streams[number]) and message.holds(route.condition)
                )
        return [self._hits[route.key] for route in routes]

    def is_refused(self, document: int) -> bool:
        """Return whether a document is not accepted as a message."""
        return document in self._refused


@cache
def broker_workload() -> BrokerWorkload:
    """Return the workload, made once in a process."""
    return BrokerWorkload()


def _is_accepted(document: SimDocument) -> bool:
    with Broker() as broker:
        try:
            broker.publish(document.text)
        except MessageError:
            return False
        return True


def _find_matches(
    queries: Sequence[SimQuery], documents: Sequence[SimDocument], refused: frozenset[int]
) -> list[tuple[int, ...]]:
    """Return, by document, the queries that it matches: one broker with all of them decides, and for joins
    with the filters of their blocks."""
    matches: list[set[int]] = [set() for _ in documents]
    wanted: list[tuple[int, str | None]] = []
    """by subscription, its query, and the stream it is restricted to"""
    with Broker(NAMESPACES) as broker:
        for query_number, query in enumerate(queries):
            for stream, text in query.blocks or ((None, query.text),):
                broker.subscribe(len(wanted), text)
                wanted.append((query_number, stream))
        for document_number, document in enumerate(documents):
            if document_number not in refused:
                for delivery in broker.publish(document.text, stream=document.stream):
                    assert isinstance(delivery.subscription, int)
                    found, restricted = wanted[delivery.subscription]
                    if restricted in (None, document.stream):
                        matches[document_number].add(found)
    return [tuple(sorted(each)) for each in matches]


def _read(document: SimDocument) -> PatternEvaluator:
    with Matcher() as matcher:
        return PatternEvaluator(matcher.index.read(Message(document.text), all=True))
