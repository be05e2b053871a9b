"""The XPath fallback: the part of XPath 1.0 that has no pattern, evaluated by lxml on candidate messages.

lxml runs in processes of its own (see `process_pool`), because only a process can be stopped: each query has
a budget of CPU time and memory for a message. A query that exceeds it again and again is suspended.
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
"""characters; a query up to this length takes no time on an empty message"""
OVERRUNS = 3
"""A query that exceeds its budget this many times is suspended,"""
_FORGIVEN = 100
"""but this many evaluations within it make up for one overrun."""
_KINDS = {
    GAVE_UP: FailureKind.UNDECIDED,
    UNREADABLE: FailureKind.UNDECIDED,
    TOO_MUCH: FailureKind.OVER_BUDGET,
    TOO_MANY: FailureKind.FAILED,
    BUG: FailureKind.FAILED,
}


class XPathFallback:
    """Evaluates queries with lxml, each identified by its slot in an index."""

    def __init__(self, costs: Counter[int], limits: Limits | None = None) -> None:
        self._costs = costs
        limits = limits or Limits()
        self._budget = Budget(limits.query_seconds, limits.query_memory, limits.result)
        self._conditions: dict[int, bytes] = {}
        self._overruns: dict[int, float] = {}
        self._release: finalize[[], Any] | None = None

    # -- queries ---------------------------------------------------------------------------------------

    def check(self, query: Query) -> None:
        """Raise QueryError if lxml cannot evaluate the query."""
        text = f"boolean({query.rooted})"
        try:
            xpath = etree.XPath(text, namespaces=exact_prefixes(query.namespaces) or None)
            if len(text) <= _SHORT:
                xpath(_TRIAL)  # lxml detects some errors, such as too deep a nesting, only now
                return
        except (etree.XPathError, ValueError) as error:
            raise QueryError(f"lxml cannot evaluate the query: {error}", query.text, 0) from None
        (found,) = self._evaluate(b"<trial/>", [_condition_request(query)])
        if isinstance(found, Ended) or found[0] != DONE:
            reason = found.reason if isinstance(found, Ended) else found[1]
            raise QueryError(f"lxml cannot evaluate the query: {reason}", query.text, 0)

    def forget(self, slot: int) -> None:
        """Remove the cache entries of an unregistered query."""
        self._conditions.pop(slot, None)
        self._overruns.pop(slot, None)

    def is_suspended(self, slot: int) -> bool:
        """Return whether a query exceeded its budget too often, and is not evaluated until `resume`."""
        return self._overruns.get(slot, 0) >= OVERRUNS

    def resume(self, slot: int) -> None:
        """Have a suspended query evaluated again."""
        if self.is_suspended(slot):
            _log.info("query resumed: slot %d", slot)
        self._overruns.pop(slot, None)

    # -- messages --------------------------------------------------------------------------------------

    def evaluate_conditions(
        self, message: Message, queries: Mapping[int, Query]
    ) -> dict[int, bool | QueryProblem]:
        """Return, for each slot, whether its query is true of the message, or why that is unknown."""
        for slot in queries.keys() - self._conditions.keys():
            self._conditions[slot] = _condition_request(queries[slot])
        return self.evaluate(message, {slot: self._conditions[slot] for slot in queries})

    def evaluate_selections(
        self, message: Message, queries: Mapping[int, Query]
    ) -> dict[int, Any | QueryProblem]:
        """Return, for each slot, what its query selects, as `lxml_process.value` encodes it, or why not."""
        return self.evaluate(message, {slot: _selection_request(query) for slot, query in queries.items()})

    def evaluate_expression(self, message: Message, xpath: str, namespaces: Mapping[str, str]) -> Any:
        """Return the value of an expression that is no query, for display; None if there is none."""
        asked = marshal.dumps(("value", xpath, False, exact_prefixes(namespaces)))
        (found,) = self._evaluate(utf8(message.data, message.encoding), [asked])
        return found[1] if not isinstance(found, Ended) and found[0] == DONE else None

    def evaluate(self, message: Message, queries: Mapping[int, bytes]) -> dict[int, Any | QueryProblem]:
        """Return, for each slot, the result of its request to `lxml_process`, or why there is none."""
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
        if self._release is None or not self._release.alive:
            self._release = POOL.enter(self)
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
            _log.error("a defect of Sapwood in the evaluation of a query: %s", value)
            return QueryProblem(kind, value.strip().splitlines()[-1])
        elif status == UNREADABLE:
            return QueryProblem(kind, f"lxml cannot read the message: {value}")
        return QueryProblem(kind, value)

    def _overrun(self, slot: int, query: bytes) -> None:
        self._overruns[slot] = self._overruns.get(slot, 0) + 1
        if self.is_suspended(slot):
            text = marshal.loads(query)[1]
            _log.warning("query suspended: it exceeded its budget on %d messages: %.300s", OVERRUNS, text)

    def _forgive(self, slot: int) -> None:
        left = self._overruns[slot] - 1 / _FORGIVEN
        if left > 0:
            self._overruns[slot] = left
        else:
            del self._overruns[slot]

    def _suspension(self) -> QueryProblem:
        return QueryProblem(
            FailureKind.SUSPENDED,
            f"it exceeded its budget on {OVERRUNS} messages, and is not evaluated until it is resumed",
        )

    def close(self) -> None:
        """Release the lxml processes, which end if no other fallback uses them."""
        if self._release is not None:
            self._release()


def _condition_request(query: Query) -> bytes:
    return marshal.dumps(("truth", f"boolean({query.rooted})", exact_prefixes(query.namespaces)))


def _selection_request(query: Query) -> bytes:
    parts = f"({query.rooted})", query.type == "node-set", exact_prefixes(query.namespaces)
    return marshal.dumps(("value", *parts))
