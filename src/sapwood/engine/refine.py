"""The part of XPath 1.0 that has no pattern, decided by lxml on the messages that reach it.

lxml keeps every name it ever saw in a dictionary of the thread that parsed it. A process that reads
strangers' messages for months would grow for ever, so parsing happens in a thread that is replaced now and
then; its dictionary goes with it.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns
from typing import Any, TypeVar

from lxml import etree

from sapwood.engine.reader import Message
from sapwood.errors import MessageError, QueryError
from sapwood.lang.namespaces import bound_prefixes
from sapwood.lang.query import Query

T = TypeVar("T")
_log = logging.getLogger(__name__)
_MESSAGES_PER_THREAD = 5_000
_TRIAL = etree.ElementTree(etree.Element("trial"))


class Refiner:
    """The refined queries, compiled by lxml, and the thread that evaluates them."""

    def __init__(self, costs: Counter[int]) -> None:
        self._costs = costs
        self._truths: dict[int, etree.XPath] = {}
        self._values: dict[int, _Value] = {}
        self._executor: ThreadPoolExecutor | None = None
        self._messages = 0
        self._process = 0

    def compiled(self, query: Query) -> etree.XPath:
        """The query's truth for lxml; QueryError if lxml cannot evaluate it."""
        return _compiled("boolean", query)

    def keep(self, slot: int, truth: etree.XPath) -> None:
        self._truths[slot] = truth

    def forget(self, slot: int) -> None:
        self._truths.pop(slot, None)
        self._values.pop(slot, None)

    def holding(self, message: Message, queries: dict[int, Query]) -> list[int]:
        """Those of the slots whose query is true of the message."""
        for slot in queries.keys() - self._truths.keys():
            self._truths[slot] = self.compiled(queries[slot])

        def evaluate() -> list[int]:
            tree = parsed(message)
            return [slot for slot in queries if self._is_true(slot, tree)]

        return self._in_thread(evaluate)

    def _is_true(self, slot: int, tree: Any) -> bool:
        started = perf_counter_ns()
        truth = bool(_evaluated(self._truths[slot], tree))
        self._costs[slot] += perf_counter_ns() - started
        return truth

    def on_tree(self, message: Message, use: Callable[[Any], T]) -> T:
        """What `use` makes of the message's tree; whoever keeps nodes of it keeps all of it in memory."""
        return self._in_thread(lambda: use(parsed(message)))

    def value(self, slot: int, query: Query, tree: Any) -> Any:
        """The slot's query evaluated on a tree, as lxml returns it; the tree itself is the document node."""
        if slot not in self._values:
            self._values[slot] = _Value(query)
        return self._values[slot].on(tree)

    def _in_thread(self, work: Callable[[], T]) -> T:
        self._messages += 1
        if self._process != os.getpid():  # threads do not survive a fork
            self._executor, self._process = None, os.getpid()
        if self._executor is None or self._messages > _MESSAGES_PER_THREAD:
            self.close()
            self._executor = ThreadPoolExecutor(1, "sapwood-lxml")
        return self._executor.submit(work).result()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        self._messages = 0


class _Nothing(etree.Resolver):
    """Whatever a message refers to outside itself is an empty string, and so is never fetched."""

    def resolve(self, url: str, public: str, context: Any) -> Any:  # type: ignore[override]
        return self.resolve_string("", context)  # type: ignore


def parsed(message: Message) -> Any:
    """The message as an lxml tree. It has passed the limits already, so lxml's own may be lifted."""
    parser = etree.XMLParser(
        attribute_defaults=True,
        resolve_entities=True,
        no_network=True,
        huge_tree=True,
        encoding=message.encoding,
    )
    parser.resolvers.add(_Nothing())
    try:
        return etree.fromstring(message.data, parser).getroottree()
    except etree.XMLSyntaxError as error:
        line, column = error.position
        raise MessageError(error.msg or "not well-formed", line, column) from None


class _Value:
    """A query's value. lxml leaves the document node out of node-sets; counting them brings it back."""

    def __init__(self, query: Query) -> None:
        self._value = _compiled("", query)
        self._count = _compiled("count", query) if query.type == "node-set" else None

    def on(self, tree: Any) -> Any:
        value = _evaluated(self._value, tree)
        if value is False:
            return []
        if self._count is not None and _evaluated(self._count, tree) > len(value):
            return [tree, *value]
        return value


def _compiled(function: str, query: Query) -> etree.XPath:
    text = f"{function}({query.rooted})"
    try:
        xpath = etree.XPath(text, namespaces=bound_prefixes(query.namespaces) or None, smart_strings=True)
        xpath(_TRIAL)  # some things, such as too deep a nesting, lxml finds out only now
    except (etree.XPathError, ValueError) as error:
        raise QueryError(f"lxml cannot evaluate the query: {error}", query.text, 0) from None
    return xpath


def _evaluated(xpath: etree.XPath, tree: Any) -> Any:
    try:
        return xpath(tree)
    except etree.XPathEvalError as error:
        _log.warning("lxml gave up on a query, which does not match: %s: %s", error, xpath.path[:200])
        return False
