"""The part of XPath 1.0 that has no pattern, decided by lxml on the messages that reach it.

lxml works in processes of its own (see `fallback_pool`), because only a process can be stopped: a query may
take so much CPU time and memory on a message and no more. One that does so again and again is suspended.
"""

from __future__ import annotations

import logging
import marshal
from collections import Counter
from collections.abc import Mapping
from typing import Any
from weakref import finalize

from lxml import etree

from sapwood.engine.failures import FailureKind, QueryProblem
from sapwood.engine.fallback.lxml_process import BUG, DONE, GAVE_UP, TOO_MANY, TOO_MUCH, UNREADABLE
from sapwood.engine.fallback.process_pool import POOL, Budget, Ended
from sapwood.engine.limits import Limits
from sapwood.engine.message.encoding import utf8
from sapwood.engine.message.message_reader import Message
from sapwood.errors import QueryError
from sapwood.lang.namespaces import exact_prefixes
from sapwood.lang.query import Query

_log = logging.getLogger(__name__)
_TRIAL = etree.ElementTree(etree.Element("trial"))
_SHORT = 5_000
"""characters of a query that takes no time on a message of nothing"""
OVERRUNS = 3
"""A query that exceeds its budget so often is suspended,"""
_FORGIVEN = 100
"""but so many evaluations within it make up for one beyond."""
_KINDS = {
    GAVE_UP: FailureKind.UNDECIDED,
    UNREADABLE: FailureKind.UNDECIDED,
    TOO_MUCH: FailureKind.OVER_BUDGET,
    TOO_MANY: FailureKind.FAILED,
    BUG: FailureKind.FAILED,
}


class XPathFallback:
    """Evaluates refined queries, each known by the slot that it has in an index."""

    def __init__(self, costs: Counter[int], limits: Limits | None = None) -> None:
        self._costs = costs
        limits = limits or Limits()
        self._budget = Budget(limits.query_seconds, limits.query_memory, limits.result)
        self._truths: dict[int, bytes] = {}
        self._overruns: dict[int, float] = {}
        self._leave: finalize[[], Any] | None = None

    # -- queries ---------------------------------------------------------------------------------------

    def check(self, query: Query) -> None:
        """QueryError if lxml cannot evaluate the query."""
        text = f"boolean({query.rooted})"
        try:
            xpath = etree.XPath(text, namespaces=exact_prefixes(query.namespaces) or None)
            if len(text) <= _SHORT:
                xpath(_TRIAL)  # some things, such as too deep a nesting, lxml finds out only now
                return
        except (etree.XPathError, ValueError) as error:
            raise QueryError(f"lxml cannot evaluate the query: {error}", query.text, 0) from None
        (found,) = self._evaluate(b"<trial/>", [_truth(query)])
        if isinstance(found, Ended) or found[0] != DONE:
            reason = found.reason if isinstance(found, Ended) else found[1]
            raise QueryError(f"lxml cannot evaluate the query: {reason}", query.text, 0)

    def forget(self, slot: int) -> None:
        self._truths.pop(slot, None)
        self._overruns.pop(slot, None)

    def is_suspended(self, slot: int) -> bool:
        return self._overruns.get(slot, 0) >= OVERRUNS

    def resume(self, slot: int) -> None:
        """Lets a query that is suspended be evaluated again."""
        self._overruns.pop(slot, None)

    # -- messages --------------------------------------------------------------------------------------

    def holding(self, message: Message, queries: Mapping[int, Query]) -> dict[int, bool | QueryProblem]:
        """For each slot, whether its query is true of the message, or why that is not known."""
        for slot in queries.keys() - self._truths.keys():
            self._truths[slot] = _truth(queries[slot])
        return self.evaluate(message, {slot: self._truths[slot] for slot in queries})

    def values(self, message: Message, queries: Mapping[int, Query]) -> dict[int, Any | QueryProblem]:
        """For each slot, what its query selects, as `fallback_process.value` tells it, or why not."""
        return self.evaluate(message, {slot: _value(query) for slot, query in queries.items()})

    def computed(self, message: Message, xpath: str, namespaces: Mapping[str, str]) -> Any:
        """The value of an expression that is no query, to show it; None if there is none."""
        asked = marshal.dumps(("value", xpath, False, exact_prefixes(namespaces)))
        (found,) = self._evaluate(utf8(message.data, message.encoding), [asked])
        return found[1] if not isinstance(found, Ended) and found[0] == DONE else None

    def evaluate(self, message: Message, queries: Mapping[int, bytes]) -> dict[int, Any | QueryProblem]:
        """For each slot, the result of its query, which is marshalled for `fallback_process`, or why there is
        none."""
        answers: dict[int, Any | QueryProblem] = {}
        if self._overruns:
            answers = {slot: self._suspension() for slot in queries if self.is_suspended(slot)}
            queries = {slot: query for slot, query in queries.items() if slot not in answers}
        if queries:
            results = self._evaluate(utf8(message.data, message.encoding), list(queries.values()))
            for (slot, query), result in zip(queries.items(), results, strict=True):
                answers[slot] = self._answer(slot, query, result)
        return answers

    def _evaluate(self, data: bytes, queries: list[bytes]) -> list[Any]:
        if self._leave is None or not self._leave.alive:
            self._leave = POOL.enter(self)
        return POOL.evaluate(data, queries, self._budget)

    def _answer(self, slot: int, query: bytes, result: Any) -> Any | QueryProblem:
        if isinstance(result, Ended):
            if result.by_query:
                self._overrun(slot, query)
            return QueryProblem(
                FailureKind.OVER_BUDGET if result.over_time else FailureKind.UNDECIDED, result.reason
            )
        status, value, spent = result
        self._costs[slot] += spent
        if status == DONE:
            if slot in self._overruns:
                self._forgive(slot)
            return value
        kind = _KINDS[status]
        if kind is FailureKind.OVER_BUDGET:
            self._overrun(slot, query)
        elif status == BUG:
            _log.error("a query failed by an error of Sapwood: %s", value)
            return QueryProblem(kind, value.strip().splitlines()[-1])
        elif status == UNREADABLE:
            return QueryProblem(kind, f"lxml cannot read the message: {value}")
        return QueryProblem(kind, value)

    def _overrun(self, slot: int, query: bytes) -> None:
        self._overruns[slot] = self._overruns.get(slot, 0) + 1
        if self.is_suspended(slot):
            text = marshal.loads(query)[1]
            _log.warning("a query went over its budget too often, and is suspended: %.300s", text)

    def _forgive(self, slot: int) -> None:
        left = self._overruns[slot] - 1 / _FORGIVEN
        if left > 0:
            self._overruns[slot] = left
        else:
            del self._overruns[slot]

    def _suspension(self) -> QueryProblem:
        return QueryProblem(
            FailureKind.SUSPENDED,
            f"it went over its budget on {OVERRUNS} messages, and is not evaluated until it is resumed",
        )

    def close(self) -> None:
        """Lets the processes go, unless others use them."""
        if self._leave is not None:
            self._leave()


def _truth(query: Query) -> bytes:
    return marshal.dumps(("truth", f"boolean({query.rooted})", exact_prefixes(query.namespaces)))


def _value(query: Query) -> bytes:
    parts = f"({query.rooted})", query.type == "node-set", exact_prefixes(query.namespaces)
    return marshal.dumps(("value", *parts))
