"""The last word on candidates whose rules say less than their query, or too many ways to look at them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock

from sapwood.engine.evaluate import Evaluator
from sapwood.engine.limits import Limits
from sapwood.engine.machine import Machine
from sapwood.engine.nfa import PathTree
from sapwood.engine.reader import Message, read_document
from sapwood.engine.refine import Refiner
from sapwood.lang.query import Query, compile_query

_MOST_KEPT = 10_000
"""queries that are kept compiled"""


class Decider:
    """Evaluates queries on messages, one by one."""

    def __init__(self, namespaces: Mapping[str, str], limits: Limits) -> None:
        self._namespaces = namespaces
        self._limits = limits
        self._machine = Machine(PathTree(), 0)
        self._refiner = Refiner(Counter())
        self._kept: OrderedDict[str, tuple[int, Query]] = OrderedDict()
        self._slots = 0
        self._lock = Lock()  # lxml works in one thread at a time

    def true_of(self, message: Message, texts: Sequence[str]) -> list[bool]:
        """Which of the queries, each given by its text, match a message that was read before."""
        with self._lock:
            return self._true_of(message, texts)

    def _true_of(self, message: Message, texts: Sequence[str]) -> list[bool]:
        evaluator = Evaluator(read_document(message, self._limits, self._machine.settle(), with_text=True))
        answers = []
        for text in texts:
            slot, query = self._compiled(text)
            holds = evaluator.holds(query.condition)
            if holds and not query.exact:
                holds = bool(self._refiner.holding(message, {slot: query}))
            answers.append(holds)
        return answers

    def _compiled(self, text: str) -> tuple[int, Query]:
        found = self._kept.pop(text, None)
        if found is None:
            self._slots += 1
            found = self._slots, compile_query(text, self._namespaces)
            if len(self._kept) >= _MOST_KEPT:
                _, (slot, _) = self._kept.popitem(last=False)
                self._refiner.forget(slot)
        self._kept[text] = found
        return found

    def close(self) -> None:
        self._refiner.close()
