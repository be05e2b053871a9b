"""Random queries that documents of a DTD can match.

A query starts as a walk from the root. Going down it, each step takes `//` with P(//) and `*` with P(*):

    walk     news    story    para    em    person
    steps    /news            //para        //person        //: on to any level left of the walk
             /news   /*       /para  /em    /person         *: instead of the name
             /news   /*              //em   /person         // and *, rewritten

`//*` becomes `/*` and hands its `//` on to the next step; at the end it is dropped. For a filter without
predicates that is the same query, written in one way only. (YFilter's generator also merges two `/*//` in a
row, which changes the query; ours does not.) Value predicates and nested paths then fall on random steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from sapwood.errors import ArgumentError
from sapwood.workload import parameter_checks
from sapwood.workload.dtd.model import Dtd
from sapwood.workload.messages.value_distributions import Values, pick
from sapwood.workload.queries.query_predicates import OPERATORS, TARGETS, Predicates
from sapwood.workload.queries.query_sampling import TRIES, Drawing
from sapwood.workload.queries.random_walks import Walker

_REDRAWS = 5  # for a second predicate on one target, which is hard to satisfy together with the first


class _Step:
    """One step, with the element that the walk has there; predicates are collected before it is written."""

    __slots__ = ("element", "level", "predicates", "targets", "test")

    def __init__(self, test: str, element: str, level: int) -> None:
        self.test = test  # with its axis: "/a", "//a" or "/*"
        self.element = element
        self.level = level  # of the element in the document, the root's being 1
        self.predicates: list[str] = []
        self.targets: set[str] = set()

    def __str__(self) -> str:
        # Sorted, so that two queries with the same predicates are the same query.
        return self.test + "".join(sorted(self.predicates))


class QueryGenerator(Drawing):
    """An endless iterator of XPath 1.0 queries.

    Each follows a walk from the root to a leaf or to level `max_depth`; with `min_depth` the walk's length is
    drawn uniformly from `min_depth` to `max_depth` (a leaf may end it in between). `wildcard` is P(*) and
    `descendant` P(//) of a step, `name_skew` the Zipf exponent over the children of an element.

    `predicates` value predicates and `nested` nested paths are spread uniformly over the steps that can take
    one. A predicate compares, with one of `operators`, one of `predicate_targets` ("attribute", "text", or
    "element" for a child of text alone) with a value that a `MessageGenerator` of the same `values`,
    `value_skew` and `numeric` writes; order operators compare numbers only.

    If `distinct`, no query comes twice: one that did is drawn again, now with all walks equally likely, and
    `QueriesExhausted` is raised when that finds no new one. It is raised too, distinct or not, if no walk can
    take the predicates or nested paths asked for.
    """

    def __init__(
        self,
        dtd: Dtd,
        *,
        seed: int = 0,
        max_depth: int = 6,
        min_depth: int | None = None,
        wildcard: float = 0.2,
        descendant: float = 0.2,
        predicates: int = 0,
        nested: int = 0,
        values: int = 20,
        value_skew: float = 0.0,
        numeric: bool = True,
        name_skew: float = 0.0,
        operators: Sequence[str] = ("=",),
        predicate_targets: Sequence[str] = ("attribute", "text"),
        distinct: bool = True,
    ) -> None:
        parameter_checks.at_least(1, max_depth=max_depth, min_depth=1 if min_depth is None else min_depth)
        parameter_checks.at_least(0, predicates=predicates, nested=nested, name_skew=name_skew)
        parameter_checks.probabilities(wildcard=wildcard, descendant=descendant)
        parameter_checks.some_of(OPERATORS, operators=operators)
        parameter_checks.some_of(TARGETS, predicate_targets=predicate_targets)
        super().__init__(dtd, distinct)
        self._max_depth = max_depth
        self._min_depth = min_depth
        self._wildcard, self._descendant = wildcard, descendant
        self._predicate_count, self._nested_count = predicates, nested
        self._random = Random(seed).random
        self._walker = Walker(dtd, max_depth, name_skew, self._random)
        pools = Values(values, value_skew, numeric)
        self._predicates = Predicates(dtd, pools, operators, predicate_targets, self._random)
        self._check_depths()

    def _why_none(self) -> tuple[str, str]:
        return (
            f"no path of DTD {self.dtd.name!r} can take {self._predicate_count} predicates and "
            f"{self._nested_count} nested paths ({TRIES:,} tries)",
            "choose other operators or targets of predicates, or allow more depth",
        )

    def _what_gives_more(self) -> str:
        return "allow more depth, wildcards, predicates or values"

    def _check_depths(self) -> None:
        if self._min_depth is None:
            return
        longest = self._walker.longest(self.dtd.root)  # never more than max_depth
        if self._min_depth > longest:
            raise ArgumentError(
                f"min_depth {self._min_depth} is more than DTD {self.dtd.name!r} and max_depth "
                f"{self._max_depth} allow: the longest path has {longest} levels"
            )

    def _attempt(self, even: bool) -> str | None:
        """A query, or None if its steps cannot take all predicates or nested paths."""
        walk = self._walk(even)
        tests, places = self._tests(walk)
        if not self._predicate_count and not self._nested_count:
            return "".join(tests)  # the common case, and the one that is tried a million times
        steps = [_Step(test, walk[place], place + 1) for test, place in zip(tests, places, strict=True)]
        if self._add_predicates(steps) and self._add_nested(steps):
            return "".join(map(str, steps))
        return None

    def _walk(self, even: bool) -> list[str]:
        if self._min_depth is None:
            return self._walker.walk(self.dtd.root, self._max_depth, even=even)
        lengths = range(self._min_depth, self._max_depth + 1)
        return self._walker.walk(self.dtd.root, pick(lengths, self._random()), self._min_depth, even)

    def _tests(self, walk: Sequence[str]) -> tuple[list[str], list[int]]:
        """Steps along a walk, as axis and name test, and the place of each in the walk."""
        tests: list[str] = []
        places: list[int] = []
        random, place, end = self._random, 0, len(walk)
        carried = False  # a // that a * has handed on
        while place < end:
            deep = carried or random() < self._descendant
            carried = False
            if random() < self._wildcard:
                test, carried = "/*", deep
            elif deep:
                place += int(random() * (end - place))
                test = "//" + walk[place]
            else:
                test = "/" + walk[place]
            tests.append(test)
            places.append(place)
            place += 1
        return tests, places

    def _add_predicates(self, steps: Sequence[_Step]) -> bool:
        for _ in range(self._predicate_count):
            operator = self._predicates.operator()
            able = [step for step in steps if self._predicates.possible(step.element, operator)]
            if not able:
                return False
            step = pick(able, self._random())
            for _ in range(_REDRAWS):
                target, predicate = self._predicates.predicate(step.element, operator)
                if target not in step.targets:
                    break
            step.targets.add(target)
            step.predicates.append(predicate)
        return True

    def _add_nested(self, steps: Sequence[_Step]) -> bool:
        for _ in range(self._nested_count):
            able = [s for s in steps if s.level < self._max_depth and not self._walker.is_leaf(s.element)]
            if not able:
                return False
            step = pick(able, self._random())
            step.predicates.append(f"[{self._nested_path(step)}]")
        return True

    def _nested_path(self, step: _Step) -> str:
        """A path from below the step's element to a leaf or the maximal depth, relative to it."""
        below = self._walker.walk(step.element, self._max_depth - step.level + 1)[1:]
        path = "".join(self._tests(below)[0])
        return f".{path}" if path.startswith("//") else path[1:]
