"""The last word on candidates whose rules say less than their query, or too many ways to look at them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

from sapwood.engine.automaton.dataguide import Dataguide
from sapwood.engine.automaton.path_trie import PathTrie
from sapwood.engine.failures import QueryProblem
from sapwood.engine.fallback.xpath_fallback import XPathFallback
from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message, read_document
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.query import Query, compile_query

_MOST_KEPT = 10_000
"""queries that are kept compiled"""
_AT_ONCE = 1_000
"""of which so many are asked of a message that lxml has parsed once"""


class ResidualEvaluator:
    """Evaluates queries on messages, one by one."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._machine = Dataguide(PathTrie(), 0)
        self._costs: Counter[int] = Counter()
        self._refiner = XPathFallback(self._costs, limits)
        self._namespaces: dict[str, str] = {}
        self._kept: OrderedDict[str, tuple[int, Query]] = OrderedDict()
        self._slots = 0
        self._lock = Lock()  # lxml works in one thread at a time

    def true_of(
        self, message: Message, texts: Sequence[str], namespaces: Mapping[str, str]
    ) -> list[bool | QueryProblem]:
        """Which of the queries, each given by its text, match a message that was read before, or why that is
        not known."""
        with self._lock:
            if namespaces != self._namespaces:
                self._namespaces = dict(namespaces)
                while self._kept:
                    self._forget_oldest()
            evaluator = PatternEvaluator(
                read_document(message, self._limits, self._machine.settle(), with_text=True)
            )
            answers: list[bool | QueryProblem] = []
            for start in range(0, len(texts), _AT_ONCE):
                answers += self._true_of(message, evaluator, texts[start : start + _AT_ONCE])
            return answers

    def _true_of(
        self, message: Message, evaluator: PatternEvaluator, texts: Sequence[str]
    ) -> list[bool | QueryProblem]:
        found = [self._compiled(text) for text in texts]
        holding = {slot for slot, query in found if evaluator.holds(query.condition)}
        refined = {slot: query for slot, query in found if slot in holding and not query.exact}
        answers = self._refiner.holding(message, refined)
        return [answers.get(slot, slot in holding) for slot, _ in found]

    def _compiled(self, text: str) -> tuple[int, Query]:
        found = self._kept.pop(text, None)
        if found is None:
            self._slots += 1
            found = self._slots, compile_query(text, self._namespaces)
            if len(self._kept) >= _MOST_KEPT:
                self._forget_oldest()
        self._kept[text] = found
        return found

    def _forget_oldest(self) -> None:
        _, (slot, _) = self._kept.popitem(last=False)
        self._refiner.forget(slot)
        del self._costs[slot]

    def close(self) -> None:
        self._refiner.close()
