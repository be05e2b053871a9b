"""A compiled query as rules: sets of branches that have to be found on the same nodes.

    /a//b[c = 1 or d]/x[@y = 2]//z        two rules:

    1. /a//b/c = 1    /a//b/x/@y = 2    /a//b/x//z
    2. /a//b/d        /a//b/x/@y = 2    /a//b/x//z        in both, b is branching point 1 and x is 2

A *branch* is a linear path with at most one test at its end. A *branching point* is a step of the pattern at
which branches of a rule part; only where they part need their nodes be compared, because a node determines
all those above it. The root element needs no comparison: there is one.

`lang.decomposition` finds the alternatives. What it cannot express, and the branches of a rule beyond
MOST_BRANCHES, are left out and listed in `weakened`: then rules find all messages that match, and perhaps
others.
"""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.lang.decomposition import Alternative, PathTest, PatternStep, decompose
from sapwood.lang.pattern import Axis, Test
from sapwood.lang.query import Query
from sapwood.relational.paths.linear_path import LinearPath

MOST_BRANCHES = 24
"""The most branches of a rule; the rest is left out. Every batch takes as many queries in turn as the longest
rule has branches."""

_LONGEST = 100
"""characters of a part that is quoted in full"""


@dataclass(frozen=True, slots=True)
class Branch:
    """A path that a message must have, ending in a value that passes the test, if there is one."""

    path: LinearPath
    test: Test | None
    points: tuple[tuple[int, int], ...]
    """branching points on the path by number, and which step each is, counted from 1; ascending"""


@dataclass(frozen=True, slots=True)
class Rule:
    """All branches must be found, each branching point at the same node in all branches that have it."""

    branches: tuple[Branch, ...]
    """equality tests first, otherwise in the order of the pattern"""


@dataclass(frozen=True, slots=True)
class RuleForm:
    """A message that matches meets one of the rules at least; if the form is `exact`, that is enough."""

    rules: tuple[Rule, ...]
    """none: no message can match"""
    weakened: tuple[str, ...]
    """the parts of the query that the rules do not express in full, and why"""

    @property
    def exact(self) -> bool:
        return not self.weakened


def relational_form(query: Query) -> RuleForm:
    """Return the rules of a query."""
    found = decompose(query.condition)
    if not found.alternatives:
        return RuleForm((), ())
    weakened = [f"{_quote(query.text[r.start : r.end])}: {r.why}" for r in query.reasons]
    weakened += [f"{_quote(str(part))}: {reason}" for part, reason in found.approximations]
    rules: dict[Rule, None] = {}
    for alternative in found.alternatives:
        paths = alternative.paths
        if len(paths) > MOST_BRANCHES:  # those with the most selective tests stay
            weakened.append(f"{len(paths)} conditions in one rule: the tables index {MOST_BRANCHES} of them")
            paths = tuple(sorted(paths, key=_is_no_equality)[:MOST_BRANCHES])
        rules[_rule(alternative, paths)] = None
    return RuleForm(tuple(rules), tuple(dict.fromkeys(weakened)))


def _quote(part: str) -> str:
    return part if len(part) <= _LONGEST else part[: _LONGEST - 1] + "…"


def _rule(alternative: Alternative, paths: tuple[PathTest, ...]) -> Rule:
    """The rule whose branches are these paths, each once.

    Branches with equal path, test and branching points are redundant: no other branch shares a step that only
    one of them has. One of them is enough, and without the others there may be fewer points.
    """
    trails = [(path, path.step.trail()) for path in paths]
    while True:
        points = _branching_points([trail for _, trail in trails])
        branches: dict[Branch, tuple[PathTest, tuple[PatternStep, ...]]] = {}
        for path, trail in trails:
            at = [(points[step], depth) for depth, step in enumerate(trail, 1) if step in points]
            branches.setdefault(
                Branch(LinearPath(alternative.linear(trail)), path.test, tuple(at)), (path, trail)
            )
        if len(branches) == len(trails):
            return Rule(tuple(sorted(branches, key=_is_no_equality)))
        trails = list(branches.values())


def _branching_points(trails: list[tuple[PatternStep, ...]]) -> dict[PatternStep, int]:
    """The steps of the pattern at which paths part, numbered in order. A path that ends parts, too."""
    following: dict[PatternStep, set[object]] = {}
    for number, trail in enumerate(trails):
        is_root = trail[0].axis is Axis.CHILD
        for i, step in enumerate(trail):
            if i or not is_root:
                last = i + 1 == len(trail)
                following.setdefault(step, set()).add(("end", number) if last else trail[i + 1])
    parting = [step for step, ways in following.items() if len(ways) > 1]
    return {step: number for number, step in enumerate(parting, 1)}


def _is_no_equality(branch: Branch | PathTest) -> bool:
    return branch.test is None or branch.test.op != "="
