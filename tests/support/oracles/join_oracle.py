"""Joins of messages, answered the naive way: one query at a time, every tuple of messages, by lxml alone."""

from __future__ import annotations

import operator
import re
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count, product
from math import inf
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from tests.support.generators.join_queries import NAMESPACES, Filter, Operand, Query, Variable
from tests.support.oracles.saxon import canonical

# -- messages --------------------------------------------------------------------------------------------


class Node(NamedTuple):
    """A node of a message; its place is its number in document order."""

    place: int
    value: str
    element: Any
    """None for attributes and text"""
    name: str
    """of an attribute"""


Binding = Mapping[str, Node]


@dataclass(eq=False)
class Message:
    id: Hashable
    stream: str
    time: float
    body: str
    _ways: dict[tuple[Query, int], list[Binding]] = field(default_factory=dict)

    @cached_property
    def tree(self) -> Any:
        return etree.ElementTree(etree.fromstring(self.body.encode()))

    @cached_property
    def _places(self) -> dict[tuple[Any, str], int]:
        """Of elements under their empty name, of attributes, and of text inside and after elements."""
        numbers = count(1)
        places: dict[tuple[Any, str], int] = {}

        def visit(element: Any) -> None:
            places[element, ""] = next(numbers)
            places.update(((element, f"@{name}"), next(numbers)) for name in element.attrib)
            places[element, "text"] = next(numbers)
            for child in element:
                visit(child)
                places[child, "tail"] = next(numbers)

        visit(self.tree.getroot())
        return places

    def nodes(self, path: str, origin: Node | None = None) -> list[Node]:
        """What a path reaches from a node, or from the message, in document order."""
        if origin is None:
            found = self.tree.xpath(path, namespaces=NAMESPACES)
        elif origin.element is None:
            return []
        else:
            found = origin.element.xpath(f".{path}", namespaces=NAMESPACES)
        return sorted(map(self._node, found))

    def _node(self, item: Any) -> Node:
        if isinstance(item, str):  # lxml gives attributes and text as strings that know where they are
            element, name = item.getparent(), item.attrname or ""  # type: ignore[attr-defined]
            kind = f"@{name}" if name else "tail" if item.is_tail else "text"  # type: ignore[attr-defined]
            return Node(self._places[element, kind], str(item), None, name)
        return Node(self._places[item, ""], str(item.xpath("string()")), item, "")

    def ways(self, query: Query, block: int) -> list[Binding]:
        """All ways to bind the variables of a block that matter, each once."""
        if (query, block) not in self._ways:
            names = [name for name in query.used if query.block_of[name] == block]
            distinct = {
                tuple(way[name].place for name in names): {name: way[name] for name in names}
                for way in self._embeddings(query.patterns[block], None)
            }
            self._ways[query, block] = list(distinct.values())
        return self._ways[query, block]

    def _embeddings(self, variable: Variable, origin: Node | None) -> Iterator[Binding]:
        for node in self.nodes(variable.xpath, origin):
            below = [list(self._embeddings(each, node)) for each in variable.below]
            for parts in product(*below):
                yield {variable.name: node} | {name: n for part in parts for name, n in part.items()}


# -- answers ---------------------------------------------------------------------------------------------


class Expected(NamedTuple):
    """A delivery: the message that completed it, all messages in the order of the blocks, and the body."""

    subscription: Hashable
    message: Hashable
    messages: tuple[Hashable, ...]
    body: str


class Late(Exception):
    """A message that is later than the lateness allows; filters and single blocks get it all the same."""

    def __init__(self, deliveries: list[Expected]) -> None:
        super().__init__()
        self.deliveries = deliveries


@dataclass(frozen=True)
class _Subscription:
    query: Query | Filter
    since: int
    """how many messages there had been"""


class Oracle:
    """A broker that remembers every message, and tries every tuple of them for every query."""

    def __init__(self, lateness: float = 0) -> None:
        self._lateness = lateness
        self._subscriptions: dict[Hashable, _Subscription] = {}
        self._history: list[Message] = []
        self._latest = -inf

    def subscribe(self, id: Hashable, query: Query | Filter) -> None:
        self._subscriptions[id] = _Subscription(query, len(self._history))

    replace = subscribe  # which keeps its place in the order

    def unsubscribe(self, id: Hashable) -> None:
        del self._subscriptions[id]

    def publish(self, body: str, id: Hashable, stream: str, time: float) -> list[Expected]:
        """What is delivered: of the message, then of those that are made of it, and so on."""
        first = Message(id, stream, time, body)
        is_late = self._is_late(first)
        self._latest = max(self._latest, time)
        deliveries: list[Expected] = []
        made: Counter[str] = Counter()
        waiting = deque([first])
        while waiting:
            message = waiting.popleft()
            deliveries += self._filtered(message)
            for subscriber, query, messages, copies in self._met(message):
                deliveries.append(_delivery(subscriber, message, messages, copies))
                if query.publish:
                    waiting += _published(query.publish, messages, copies, made)
        if is_late:
            raise Late(deliveries)
        return deliveries

    def _is_late(self, message: Message) -> bool:
        """Whether a message is too late for anybody who joins it with others."""
        queries = [subscription.query for subscription in self._subscriptions.values()]
        joins = [query for query in queries if isinstance(query, Query) and len(query.blocks) > 1]
        read = any(block.stream == message.stream for query in joins for block in query.blocks)
        return read and message.time < self._latest - self._lateness

    def _filtered(self, message: Message) -> list[Expected]:
        return [
            _delivery(subscriber, message, (message,), [message.body])
            for subscriber, subscription in self._subscriptions.items()
            if isinstance(subscription.query, Filter)
            and message.tree.xpath(f"boolean({subscription.query.xpath})", namespaces=NAMESPACES)
        ]

    def _met(self, new: Message) -> Iterator[tuple[Hashable, Query, tuple[Message, ...], list[str]]]:
        """The queries that a message completes, with which others, and what they make of them."""
        is_late = self._is_late(new)
        if not is_late:
            self._history.append(new)
        for subscriber, subscription in self._subscriptions.items():
            query = subscription.query
            if not isinstance(query, Filter):
                history = [new] if is_late else self._history[subscription.since :]
                for messages in _tuples(query, new, history):
                    copies = made_of(query, messages)
                    if copies is not None:
                        yield subscriber, query, messages, copies


def _delivery(
    subscriber: Hashable, message: Message, messages: tuple[Message, ...], copies: list[str]
) -> Expected:
    return Expected(subscriber, message.id, tuple(m.id for m in messages), canonical("".join(copies)))


def _published(
    stream: str, messages: tuple[Message, ...], copies: list[str], made: Counter[str]
) -> Iterator[Message]:
    name = f"{stream}({', '.join(map(_named, messages))})"
    for copy in copies:
        made[name] += 1
        id = name if made[name] == 1 else f"{name}#{made[name]}"
        yield Message(id, stream, max(m.time for m in messages), copy)


def _named(message: Message) -> str:
    if not message.stream or str(message.id).startswith(f"{message.stream}("):
        return str(message.id)
    return f"{message.stream}:{message.id}"


def _tuples(query: Query, new: Message, history: list[Message]) -> Iterator[tuple[Message, ...]]:
    """All tuples of distinct messages of the right streams and times, with the new one, the last, in it."""
    for place in range(len(query.blocks)):
        pools = [
            [m for m in ([new] if i == place else history[:-1]) if m.stream == block.stream]
            for i, block in enumerate(query.blocks)
        ]
        for messages in product(*pools):
            if len(set(messages)) == len(messages) and _in_time(query, messages):
                yield messages


def _in_time(query: Query, messages: tuple[Message, ...]) -> bool:
    times = [message.time for message in messages]
    return all(link.holds(max(times[:i]), times[i]) for i, link in enumerate(query.links, 1))


def made_of(query: Query, messages: tuple[Message, ...]) -> list[str] | None:
    """What a query makes of messages, one for each block; None if no way to bind its variables will do."""

    def values(binding: Binding, operands: Iterable[Operand]) -> list[set[str]]:
        return [{node.value for node in _reached(query, o, binding, messages)} for o in operands]

    bindings: list[Binding] = list(messages[0].ways(query, 0))
    for i, link in enumerate(query.links, 1):
        ops = ["number =" if c.numeric else c.op for c in link.comparisons]
        before = [(binding, values(binding, (c.left for c in link.comparisons))) for binding in bindings]
        ways = [(w, values(w, (c.right for c in link.comparisons))) for w in messages[i].ways(query, i)]
        bindings = [
            {**binding, **way}
            for binding, left in before
            for way, right in ways
            if all(map(_holds, ops, left, right))
        ]
    if not bindings:
        return None
    if query.select is None and len(query.blocks) == 1:
        return [messages[0].body]
    combinations = {tuple(b[name].place for name in query.shown): b for b in bindings}
    return [_filled(query, combinations[key], messages) for key in sorted(combinations)]


def _reached(query: Query, operand: Operand, binding: Binding, messages: tuple[Message, ...]) -> list[Node]:
    """The nodes that an operand stands for; those of a variable alone are the one that it is bound to."""
    node = binding[operand.variable]
    if not operand.path:
        return [node]
    return messages[query.block_of[operand.variable]].nodes(operand.path, node)


def _holds(op: str, left: set[str], right: set[str]) -> bool:
    """Whether a comparison does for some of the values on either side."""
    return any(_compare(one, op, other) for one in left for other in right)


_NUMBER = etree.XPath("number($text)")
_ANYWHERE = etree.Element("anywhere")
_OPERATORS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "number =": operator.eq
}  # fmt: skip


@cache
def _number(text: str) -> float:
    return float(str(_NUMBER(_ANYWHERE, text=text)))


def _compare(one: str, op: str, other: str) -> bool:
    """= and != compare strings, the others numbers."""
    if op in ("=", "!="):
        return (one == other) == (op == "=")
    return bool(_OPERATORS[op](_number(one), _number(other)))


_START_TAG = re.compile(r"<[^\s/>]+")


def _filled(query: Query, binding: Binding, messages: tuple[Message, ...]) -> str:
    text = ""
    for part in query.template:
        if isinstance(part, str):
            text += part
            continue
        nodes = _reached(query, part.operand, binding, messages)
        if part.function == "count":
            text += str(len(nodes))
        elif part.function == "string":
            text += escape(nodes[0].value if nodes else "", {'"': "&quot;"})
        elif text.rfind("<") > text.rfind(">"):  # inside the value of an attribute
            text += escape(" ".join(node.value for node in nodes), {'"': "&quot;"})
        else:
            for node in nodes:
                text = _with_node(text, node, query.select is None)
    return text


def _with_node(text: str, node: Node, is_default: bool) -> str:
    """The text with a copy of a node after it; attributes go into the start tag, unless the query said
    nothing of its output."""
    if node.element is not None:
        cut = etree.tostring(node.element, encoding="unicode", with_tail=False)
        if None not in node.element.nsmap:  # it must not fall into a namespace of the template's
            cut = _START_TAG.sub(lambda tag: f'{tag.group()} xmlns=""', cut, count=1)
        return text + cut
    if not node.name or is_default:
        return text + escape(node.value)
    assert text.endswith(">"), "an attribute after content"
    return f"{text[:-1]} {node.name}={quoteattr(node.value)}>"
