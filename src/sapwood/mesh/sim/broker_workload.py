"""A workload of real queries and documents, whose answers are those of a `Broker` and of the real routes.

    matches    one process with all queries and no mesh: what has to be delivered
    holds      the routes' conditions, after the way that they make between brokers: what may be forwarded

A join is delivered when several messages are at its host. So a document counts as a match of a join if it
satisfies one of its blocks, which is written beside it as a plain filter.

What projection leaves of a document is a copy with a number of its own, of which the answers are those of its
bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import blake2b

from sapwood.broker import Broker
from sapwood.engine import Matcher
from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.errors import MessageError
from sapwood.mesh.core import frames
from sapwood.mesh.projection.pruning_plan import PruningPlan, prune
from sapwood.mesh.routing.read_paths import covers, unite_reads
from sapwood.mesh.routing.route import Route, decode_route, encode_route, routes_of
from sapwood.mesh.wire.message_content import MessageContent, Projection

NAMESPACES = {"f": "urn:finance", "n": "urn:news"}
TENANT = "simulation"
_covers = lru_cache(maxsize=100_000)(covers)


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


@dataclass(slots=True)
class _Text:
    """The bytes of a message in its stream, and what is asked about them again and again."""

    stream: str
    body: bytes
    results: dict[int, tuple[bytes, ...]] | None
    """by query that it matches, the bodies of the deliveries; None: it is not accepted as a message"""
    evaluator: PatternEvaluator | None
    holding: list[int] = field(default_factory=list)
    """keys of the routes whose condition holds"""

    def holds(self, route: Route) -> bool:
        """Return whether a route wants the message."""
        if self.evaluator is None or route.stream not in (None, self.stream):
            return False
        return self.evaluator.holds(route.condition)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A document as it was published, or what is left of it."""

    original: int
    text: _Text
    plan: PruningPlan | None = None
    """what was kept; None: all"""


class BrokerWorkload:
    """Queries and documents as tables of who matches what.

    Numbers of documents begin with those that are published; the copies follow from which parts were cut.
    """

    def __init__(
        self, queries: Sequence[SimQuery] = QUERIES, documents: Sequence[SimDocument] = DOCUMENTS
    ) -> None:
        self.queries = len(queries)
        self.documents = len(documents)
        self._answers = _Answers(queries)
        self._texts: dict[tuple[str, bytes], _Text] = {}
        self._known: dict[int, Route] = {}
        """by key, the routes that were asked for"""
        self._copies = [
            _Copy(number, self._find_text(document.stream, document.text.encode()))
            for number, document in enumerate(documents)
        ]
        self._answers.pause()
        self._originals = {(c.text.stream, digest(c.text.body)): c.original for c in self._copies}
        self._cut: dict[tuple[int, bytes], int] = {}
        """by document and plan, the number of the copy"""
        self._routes = [self._make_routes(query) for query in queries]
        self._reads = [unite_reads(route.reads for route in routes) for routes in self._routes]
        self._hits: dict[int, int] = {}
        """by the key of a route, the documents of which it holds, as bits"""
        for routes in self._routes:
            for route in routes:
                self.learn(route)

    def _make_routes(self, query: SimQuery) -> tuple[Route, ...]:
        """Return the routes of a query, as other brokers get them."""
        return tuple(decode_route(encode_route(r)) for r in routes_of(query.text, NAMESPACES, TENANT))

    def _find_text(self, stream: str, body: bytes) -> _Text:
        found = self._texts.get((stream, body))
        if found is None:
            results = self._answers.find(stream, body)
            evaluator = _read(body) if results is not None else None
            found = self._texts[stream, body] = _Text(stream, body, results, evaluator)
            found.holding += [key for key, route in self._known.items() if found.holds(route)]
        return found

    # -- queries and routes ----------------------------------------------------------------------------

    def matching(self, document: int) -> Collection[int]:
        """Return the queries that a document matches."""
        return self._copies[document].text.results or ()

    def results(self, document: int, query: int) -> tuple[bytes, ...]:
        """Return the bodies of what a query delivers of a document."""
        return (self._copies[document].text.results or {}).get(query, ())

    def routes(self, query: int) -> tuple[frames.Route, ...]:
        """Return necessary conditions of a query."""
        return self._routes[query]

    def holding(self, document: int) -> Collection[int]:
        """Return the keys of the routes whose condition holds of a document."""
        return self._copies[document].text.holding

    def learn(self, route: frames.Route) -> None:
        """Find out of which documents a route holds that a node has made."""
        if route.key not in self._known:
            assert isinstance(route, Route)
            known = self._known[route.key] = decode_route(encode_route(route))
            for text in self._texts.values():
                if text.holds(known):
                    text.holding.append(route.key)

    def find_hits(self, routes: Sequence[Route]) -> list[int]:
        """Return, for each route, the documents of which it holds, as bits."""
        for route in routes:
            if route.key not in self._hits:
                self._hits[route.key] = sum(
                    1 << number for number in range(self.documents) if self._copies[number].text.holds(route)
                )
        return [self._hits[route.key] for route in routes]

    def is_refused(self, document: int) -> bool:
        """Return whether a document is not accepted as a message."""
        return self._copies[document].text.results is None

    # -- copies ----------------------------------------------------------------------------------------

    def content(self, document: int, id: str) -> MessageContent:
        """Return a document as a message between brokers."""
        copy = self._copies[document]
        projection = None
        if copy.plan is not None:
            projection = Projection(copy.plan, digest(self._copies[copy.original].text.body))
        return MessageContent(TENANT, copy.text.stream, id, None, copy.text.body, projection=projection)

    def find_document(self, content: MessageContent) -> int:
        """Return the document that a message between brokers is. That there is one with the same bytes is
        what is tested: those of a cut one are what its plan leaves of the document that was published."""
        projection = content.projection
        if projection is None:
            return self._originals[content.stream, digest(content.body)]
        original = self._originals[content.stream, projection.original]
        place = original, projection.plan.identity
        found = self._cut.get(place)
        if found is None:
            whole = self._copies[original].text.body
            text = self._find_text(content.stream, prune(whole, projection.plan, Limits()))
            found = self._cut[place] = len(self._copies)
            self._copies.append(_Copy(original, text, projection.plan))
        assert self._copies[found].text.body == content.body
        return found

    def is_partial(self, document: int) -> bool:
        """Return whether parts of a document were cut."""
        return self._copies[document].plan is not None

    def has_all(self, document: int, query: int) -> bool:
        """Return whether a document has all that a query reads."""
        plan = self._copies[document].plan
        return plan is None or _covers(plan.reads, self._reads[query])


@cache
def broker_workload() -> BrokerWorkload:
    """Return the workload, made once in a process."""
    return BrokerWorkload()


class _Answers:
    """What queries deliver: one broker with all of them decides, and for joins with the filters of their
    blocks."""

    def __init__(self, queries: Sequence[SimQuery]) -> None:
        self._queries = queries
        self._broker: Broker | None = None
        self._wanted: list[tuple[int, str | None]] = []
        """by subscription, its query, and the stream it is restricted to"""

    def _open(self) -> Broker:
        broker = Broker(NAMESPACES)
        self._wanted.clear()
        for number, query in enumerate(self._queries):
            for stream, text in query.blocks or ((None, query.text),):
                broker.subscribe(len(self._wanted), text)
                self._wanted.append((number, stream))
        return broker

    def pause(self) -> None:
        """Release the processes of the broker until it is asked again."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def find(self, stream: str, body: bytes) -> dict[int, tuple[bytes, ...]] | None:
        """Return, by query that a message matches, the bodies of the deliveries; None if it is refused."""
        broker = self._broker = self._broker or self._open()
        found: dict[int, tuple[bytes, ...]] = {}
        try:
            deliveries = broker.publish(body, stream=stream)
        except MessageError:
            return None
        for delivery in deliveries:
            assert isinstance(delivery.subscription, int)
            query, restricted = self._wanted[delivery.subscription]
            if restricted in (None, stream):
                found[query] = (*found.get(query, ()), delivery.body)
        return dict(sorted(found.items()))


def digest(body: bytes) -> bytes:
    """Return a digest of a message's body."""
    return blake2b(body, digest_size=16).digest()


def _read(body: bytes) -> PatternEvaluator:
    with Matcher() as matcher:
        return PatternEvaluator(matcher.index.read(Message(body), all=True))
