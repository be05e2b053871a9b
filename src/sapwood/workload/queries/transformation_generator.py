"""Random for-where-return queries over documents of a DTD.

    for $b in /book//section where $b/figure/@width=3 and $b/title=7 return <r>{$b//figure}{$b/title}</r>

As in the thesis: a binding path of up to D1 steps, PP predicates and RP distinct return paths of up to D2
steps each, every step `//` with DSProb. Predicates and return paths are written in order, so that two queries
that differ in their order alone are one query, written in one way only.

What is bound must hold what is returned: it is the last but one element of a walk of up to D1 + 1 levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from sapwood.workload import parameter_checks
from sapwood.workload.dtd.model import Dtd
from sapwood.workload.messages.value_distributions import Values, pick
from sapwood.workload.queries.query_predicates import Predicates
from sapwood.workload.queries.query_sampling import TRIES, Drawing
from sapwood.workload.queries.random_walks import Walker

_REDRAWS = 20  # for a predicate or return path that a query does not have yet; an element may have few
_TEXT = "text()"


class TransformationGenerator(Drawing):
    """An endless iterator of for-where-return queries.

    Each binds `$b` to an element that can have children, at level `binding_depth` of a walk from the root or
    where the walk has only leaves to go on to; to the root itself only if nothing else can be bound.
    `predicate_paths` conditions compare with `=` what lies up to `relative_depth` steps below: an element of
    text alone, text in mixed content, or an attribute (which is no step; of `$b` itself too). The values are
    those that a `MessageGenerator` of the same `values`, `value_skew` and `numeric` writes. `return_paths`
    distinct paths of up to `relative_depth` steps select what is returned. `descendant` is P(//) of a step,
    `name_skew` the Zipf exponent over the children of an element.

    If `distinct`, no query comes twice: one that did is drawn again, now with all walks equally likely, and
    `QueriesExhausted` is raised when that finds no new one. It is raised too, distinct or not, if no element
    can take the predicates and return paths asked for.
    """

    def __init__(
        self,
        dtd: Dtd,
        *,
        seed: int = 0,
        binding_depth: int = 3,
        predicate_paths: int = 1,
        return_paths: int = 2,
        relative_depth: int = 2,
        descendant: float = 0.2,
        values: int = 10,
        value_skew: float = 0.0,
        numeric: bool = True,
        name_skew: float = 0.0,
        distinct: bool = True,
    ) -> None:
        parameter_checks.at_least(1, binding_depth=binding_depth, return_paths=return_paths)
        parameter_checks.at_least(1, relative_depth=relative_depth)
        parameter_checks.at_least(0, predicate_paths=predicate_paths, name_skew=name_skew)
        parameter_checks.probabilities(descendant=descendant)
        super().__init__(dtd, distinct)
        self._binding_depth, self._relative_depth = binding_depth, relative_depth
        self._predicate_count, self._return_count = predicate_paths, return_paths
        self._descendant = descendant
        self._random = Random(seed).random
        levels = max(binding_depth, relative_depth) + 1
        self._walker = Walker(dtd, levels, name_skew, self._random)
        # A walk of three levels binds an element below the root.
        self._least = min(3, binding_depth + 1, self._walker.longest(dtd.root))
        pools = Values(values, value_skew, numeric)
        self._predicates = Predicates(dtd, pools, ("=",), ("attribute", "text"), self._random)

    def _why_none(self) -> tuple[str, str]:
        return (
            f"no element of DTD {self.dtd.name!r} down to level {self._binding_depth} can take "
            f"{self._predicate_count} predicates and {self._return_count} return paths ({TRIES:,} tries)",
            "ask for fewer, or allow deeper bindings, deeper relative paths or descendant steps",
        )

    def _what_gives_more(self) -> str:
        return "allow more depth, paths or values"

    def _attempt(self, even: bool) -> str | None:
        """A query, or None if what it binds cannot take all predicates or return paths."""
        walk = self._walker.walk(self.dtd.root, self._binding_depth + 1, self._least, even)[:-1]
        if not walk:
            return None
        binding, element = self._path(walk), walk[-1]
        predicates = _distinct(self._predicate_count, lambda: self._predicate(element, even))
        returned = _distinct(self._return_count, lambda: self._returned(element, even))
        if predicates is None or returned is None:
            return None
        where = f" where {' and '.join(predicates)}" if predicates else ""
        holes = "".join(f"{{{path}}}" for path in returned)
        return f"for $b in {binding}{where} return <r>{holes}</r>"

    def _predicate(self, element: str, even: bool) -> tuple[str, str] | None:
        """Return the compared path and the comparison; None if the walk has led to nothing comparable."""
        steps = pick(range(self._relative_depth + 1), self._random())
        walk = self._walker.walk(element, steps + 1, even=even)
        end = walk[-1]
        if not self._predicates.possible(end, "="):
            return None
        path = "$b" + self._path(walk[1:])
        target, predicate = self._predicates.predicate(end, "=")
        comparison = predicate[1:-1]  # without its brackets
        if target == _TEXT and self.dtd.elements[end].only_text:
            return path, path + comparison.removeprefix(_TEXT)
        return f"{path}/{target}", f"{path}/{comparison}"

    def _returned(self, element: str, even: bool) -> tuple[str, str]:
        steps = 1 + pick(range(self._relative_depth), self._random())
        path = "$b" + self._path(self._walker.walk(element, steps + 1, even=even)[1:])
        return path, path

    def _path(self, walk: Sequence[str]) -> str:
        """Steps along a walk; `//` leads on to any level that is left of it."""
        path: list[str] = []
        random, place, end = self._random, 0, len(walk)
        while place < end:
            deep = random() < self._descendant
            if deep:
                place += int(random() * (end - place))
            path.append(("//" if deep else "/") + walk[place])
            place += 1
        return "".join(path)


def _distinct(count: int, draw: Callable[[], tuple[str, str] | None]) -> list[str] | None:
    """Draw that many texts with distinct keys, in order; None if a few draws do not find them.

    Predicates have what they compare as a key: a second value for it is hard to meet together with the first.
    """
    found: dict[str, str] = {}
    for _ in range(count):
        for _ in range(_REDRAWS):
            drawn = draw()
            if drawn is not None and drawn[0] not in found:
                found[drawn[0]] = drawn[1]
                break
        else:
            return None
    return sorted(found.values())
