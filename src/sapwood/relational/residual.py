"""The residual check: evaluates queries whose rules are weaker than the query on their candidate messages."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

from sapwood.engine.automaton.dataguide import Dataguide
from sapwood.engine.automaton.path_trie import PathTrie
from sapwood.engine.failures import QueryProblem
from sapwood.engine.fallback.xpath_fallback import XPathFallback
from sapwood.engine.kernel.kernel_reader import read_nodes
from sapwood.engine.limits import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.query import Query, compile_query

_MAX_COMPILED_QUERIES = 10_000
"""compiled queries in the LRU cache"""
_QUERIES_PER_PARSE = 1_000
"""queries that lxml evaluates on a message that it has parsed once"""


class ResidualEvaluator:
    """Evaluates queries on single messages, with a cache of compiled queries."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._guide = Dataguide(PathTrie(), 0)
        self._costs: Counter[int] = Counter()
        self._fallback = XPathFallback(self._costs, limits)
        self._namespaces: dict[str, str] = {}
        self._compiled: OrderedDict[str, tuple[int, Query]] = OrderedDict()
        self._slots = 0
        self._lock = Lock()  # lxml works in one thread at a time

    def evaluate(
        self, message: Message, texts: Sequence[str], namespaces: Mapping[str, str]
    ) -> list[bool | QueryProblem]:
        """Return for each query text whether the message matches it, or why it cannot be evaluated."""
        with self._lock:
            if namespaces != self._namespaces:
                self._namespaces = dict(namespaces)
                while self._compiled:
                    self._evict_oldest()
            evaluator = PatternEvaluator(
                read_nodes(message, self._limits, self._guide.start(), with_text=True)
            )
            results: list[bool | QueryProblem] = []
            for start in range(0, len(texts), _QUERIES_PER_PARSE):
                results += self._evaluate_chunk(message, evaluator, texts[start : start + _QUERIES_PER_PARSE])
            return results

    def _evaluate_chunk(
        self, message: Message, evaluator: PatternEvaluator, texts: Sequence[str]
    ) -> list[bool | QueryProblem]:
        compiled = [self._compile(text) for text in texts]
        holding = {slot for slot, query in compiled if evaluator.holds(query.condition)}
        refined = {slot: query for slot, query in compiled if slot in holding and not query.exact}
        answers = self._fallback.evaluate_conditions(message, refined)
        return [answers.get(slot, slot in holding) for slot, _ in compiled]

    def _compile(self, text: str) -> tuple[int, Query]:
        """Return the compiled query from the cache, with its slot in the fallback."""
        entry = self._compiled.pop(text, None)
        if entry is None:
            self._slots += 1
            entry = self._slots, compile_query(text, self._namespaces)
            if len(self._compiled) >= _MAX_COMPILED_QUERIES:
                self._evict_oldest()
        self._compiled[text] = entry
        return entry

    def _evict_oldest(self) -> None:
        _, (slot, _) = self._compiled.popitem(last=False)
        self._fallback.forget(slot)
        del self._costs[slot]

    def close(self) -> None:
        """Release the fallback's resources."""
        self._fallback.close()
