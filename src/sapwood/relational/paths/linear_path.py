"""Linear paths, which subscriptions ask for, and tag paths, which messages have.

    linear path    /a//b/x/@y            steps from the document down, without conditions
    tag path       /a/b/b/x/@y           the names from the root element down to one node

Which linear paths match a tag path is looked up, not tried. A linear path is cut in three:

    /a/b//c/*/d//e/text()
    ~~~~                       prefix   /a/b        up to the first break: a `//` or a wildcard
        ~~~~~~~                middle   c/*/d
               ~~~~~~~~~~      suffix   text()/e    from the last break on, reversed

Prefix and suffix are literal, so a tag path that matches starts with the one and, read backwards, with the
other. `lookups` tells all such pairs, and only the paths found by them are checked. They have to be: `/a` and
`/a/*` have the same prefix and suffix.

In texts, names with a namespace are `{uri}local`, as James Clark writes them. What would make a text
ambiguous inside the braces is percent-encoded, because a URI may contain anything; a text has one reading.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate

from sapwood.engine.automaton.dataguide import name_tests_of
from sapwood.lang.pattern import ANY_NAMESPACE, TEXT, Axis, is_wildcard

TagPath = tuple[str, ...]
"""Names from the root element down, see `element_tag`; the last may be `text()`, or `@name`: an attribute."""

MOST_LITERAL = 16
"""Steps of a prefix or a suffix; more would find hardly fewer paths, and there would be many to look for."""

_STEP = re.compile(r"(//?)(@?)((?:\{[^{}]*\})?[^/{}@]+)")
_AXES = {axis.value: axis for axis in (Axis.CHILD, Axis.DESCENDANT)}
_ESCAPES = {
    ord(character): f"%{ord(character):02X}" for character in "%{}\0"
}  # not every database stores NUL
_ESCAPED = re.compile("%(25|7B|7D|00|2A)")


@dataclass(frozen=True, slots=True)
class LinearPath:
    """Steps from the document down: an axis and a name test each, as in `lang.pattern`.

    Attributes and text nodes are found at the end only.
    """

    steps: tuple[tuple[Axis, str], ...]

    @property
    def text(self) -> str:
        """The path as people write it; equal for equal paths only."""
        return _text(self.steps)

    @property
    def prefix(self) -> str:
        """The text of the steps before the first break: of all of them, if there is none."""
        return _text(self.steps[: self._cuts()[0]])

    @property
    def suffix(self) -> str:
        """The names from the last break on, reversed; a wildcard that breaks is left to the middle."""
        return "/".join(_name(axis, test) for axis, test in reversed(self.steps[self._cuts()[1] :]))

    @property
    def middle(self) -> str | None:
        """The text of what lies between prefix and suffix, without leading slashes; None if nothing does."""
        start, end = self._cuts()
        return _text(self.steps[start:end]).lstrip("/") or None

    def _cuts(self) -> tuple[int, int]:
        """How many steps the prefix has, and how many come before the suffix."""
        breaks = [
            i for i, (axis, test) in enumerate(self.steps) if axis is Axis.DESCENDANT or is_wildcard(test)
        ]
        if not breaks:
            return min(len(self.steps), MOST_LITERAL), len(self.steps)
        last = breaks[-1]
        suffix = last + 1 if is_wildcard(self.steps[last][1]) else last
        return min(breaks[0], MOST_LITERAL), max(suffix, len(self.steps) - MOST_LITERAL)


def parse_linear(text: str) -> LinearPath:
    """The path with this text."""
    return LinearPath(tuple(_steps(text)))


# -- tag paths -----------------------------------------------------------------------------------------


def element_tag(name: str) -> str:
    """An element's name in a tag path: the reader's, unless it looks like an attribute's.

    A namespace may begin with `@`. Then the name is preceded by `}`, with which no reader's name begins.
    """
    return f"}}{name}" if name[0] == "@" else name


def tag_text(tag: TagPath) -> str:
    """The tag path as people write it: the text of the linear path that matches nothing else."""
    return "".join(f"/{_tag_name(name)}" for name in tag)


def reversed_text(tag: TagPath) -> str:
    """The names from the last to the root element's: what suffixes are beginnings of."""
    return "/".join(map(_tag_name, reversed(tag)))


def parse_tag(text: str) -> TagPath:
    """The tag path with this text."""
    return tuple([f"@{name}" if axis is Axis.ATTRIBUTE else element_tag(name) for axis, name in _steps(text)])


# -- matching ------------------------------------------------------------------------------------------


def lookups(tag: TagPath, longest: tuple[int, int] | None = None) -> list[tuple[str, str]]:
    """All pairs of prefix and suffix that a linear path may have which matches the tag path.

    There are 15 for a path of four names, and fewer where it is known how many steps the longest prefix and
    the longest suffix have that anybody asks for, at most.
    """
    depth = len(tag)
    before, after = longest or (MOST_LITERAL, MOST_LITERAL)
    prefixes = ["", *accumulate(f"/{_tag_name(name)}" for name in tag[:before])]
    suffixes = ["", *accumulate(map(_tag_name, tag[: -after - 1 : -1]), "{}/{}".format)]
    broken = [
        (prefix, suffix) for p, prefix in enumerate(prefixes[:depth]) for suffix in suffixes[: depth - p + 1]
    ]
    return [(prefixes[depth], ""), *broken] if len(prefixes) > depth else broken


def matches(path: LinearPath, tag: TagPath) -> bool:
    """Whether the path leads to the last name of the tag path.

    Each run of steps between two `//` is put as high up as it goes, which leaves the most room for the rest;
    so only the last `//` is ever reconsidered, and the cost is at most one product of the lengths.
    """
    steps = path.steps
    count, depth = len(steps), len(tag)
    step = at = 0
    deep = -1  # the last `//` met, and where the step behind it was put
    deep_at = 0
    while at < depth:
        if count - step > depth - at:
            return False
        if step < count:
            axis, test = steps[step]
            name = tag[at]
            if axis is Axis.DESCENDANT:
                deep, deep_at = step, at
            if (test == name and name[0] != "@") or _passes(axis, test, name):  # the former is quick to see
                step += 1
                at += 1
                continue
        if deep < 0:
            return False
        deep_at += 1
        step, at = deep, deep_at
    return step == count


def positions(
    path: LinearPath, tag: TagPath, at: tuple[int, ...], most: int = 4096
) -> list[tuple[int, ...]] | None:
    """Where in the tag path the steps numbered `at`, in ascending order, stand in the ways to match it.

    Both are counted from 1. The vectors are distinct and sorted; None if there are more than `most`.

    Vectors grow a step at a time, each with the set of positions, as bits of a number, at which the last step
    may stand. Positions from which the rest of the path cannot be completed are left out, so every vector
    becomes at least one answer, and there are never more of them than answers.
    """
    if not matches(path, tag):
        return []
    vectors: dict[tuple[int, ...], int] = {(): 1}  # the document is at position 0
    for number, (allowed, (axis, _)) in enumerate(zip(_completable(path, tag), path.steps, strict=True), 1):
        grown: dict[tuple[int, ...], int] = {}
        for vector, before in vectors.items():
            lowest = before & -before
            here = allowed & (-lowest << 1 if axis is Axis.DESCENDANT else before << 1)
            if number not in at:
                grown[vector] = here
                continue
            while here:
                bit = here & -here
                here ^= bit
                grown[(*vector, bit.bit_length() - 1)] = bit
            if len(grown) > most:
                return None
        vectors = grown
    return sorted(vectors)


def _completable(path: LinearPath, tag: TagPath) -> list[int]:
    """For each step, as bits, the positions where it may stand so that later steps lead to the end."""
    completable: list[int] = []
    allowed = 1 << len(tag)
    for axis, test in reversed(path.steps):
        passing = [at for at, name in enumerate(tag, 1) if allowed >> at & 1 and _passes(axis, test, name)]
        here = sum(1 << at for at in passing)
        completable.append(here)
        allowed = (1 << max(passing, default=0)) - 1 if axis is Axis.DESCENDANT else here >> 1
    completable.reverse()
    return completable


def _passes(axis: Axis, test: str, name: str) -> bool:
    """Whether a name of a tag path passes the test of a step."""
    if axis is Axis.ATTRIBUTE:
        if name[0] != "@":
            return False
        name = name[1:]
        return test == name or (is_wildcard(test) and test in name_tests_of(name))
    if name[0] == "}":
        name = name[1:]
    elif name[0] == "@" or (name == TEXT and test != TEXT):
        return False
    return test == name or (is_wildcard(test) and test in name_tests_of(name))


# -- texts ---------------------------------------------------------------------------------------------


def _text(steps: tuple[tuple[Axis, str], ...]) -> str:
    return "".join(("//" if axis is Axis.DESCENDANT else "/") + _name(axis, test) for axis, test in steps)


def _steps(text: str) -> list[tuple[Axis, str]]:
    steps: list[tuple[Axis, str]] = []
    end = 0
    while end < len(text):
        step = _STEP.match(text, end)
        if step is None or step[1] + step[2] == "//@":
            raise ValueError(f"not a path, at character {end + 1}: {text!r}")
        steps.append((Axis.ATTRIBUTE if step[2] else _AXES[step[1]], _read(step[3])))
        end = step.end()
    return steps


def _name(axis: Axis, test: str) -> str:
    return f"@{_written(test)}" if axis is Axis.ATTRIBUTE else _written(test)


def _tag_name(name: str) -> str:
    if name[0] == "@":
        return f"@{_written(name[1:])}"
    return _written(name[1:] if name[0] == "}" else name)


def _written(name: str) -> str:
    """A reader's name or a name test as it stands in a text."""
    uri, brace, local = name.rpartition("}")
    return f"{{{_escaped(uri)}}}{local}" if brace else name


def _read(written: str) -> str:
    uri, brace, local = written[1:].rpartition("}")
    if not brace:
        return written
    return (ANY_NAMESPACE if uri == "*" else _ESCAPED.sub(_character, uri)) + brace + local


def _escaped(uri: str) -> str:
    if uri == ANY_NAMESPACE:
        return "*"
    return "%2A" if uri == "*" else uri.translate(_ESCAPES)


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))
