"""Linear paths, which queries have, and tag paths, which messages have.

    linear path    /a//b/x/@y            steps from the document down, without conditions
    tag path       /a/b/b/x/@y           the names from the root element down to one node

The linear paths that match a tag path are found by lookup. For this, a linear path is cut in three:

    /a/b//c/*/d//e/text()
    ~~~~                       prefix   /a/b        up to the first break: a `//` or a wildcard
        ~~~~~~~                middle   c/*/d
               ~~~~~~~~~~      suffix   text()/e    from the last break on, reversed

Prefix and suffix are literal, so a tag path that matches starts with the one and, read backwards, with the
other. `lookup_keys` returns all such pairs, and only the paths found by them are matched. That is necessary:
`/a` and `/a/*` have the same prefix and suffix.

In texts, names with a namespace are in Clark notation, `{uri}local`. Characters of the URI that would make a
text ambiguous are percent-encoded: every text is parsed in one way only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate

from sapwood.engine.automaton.dataguide import name_tests_of
from sapwood.errors import ArgumentError
from sapwood.lang.pattern import ANY_NAMESPACE, TEXT, Axis, is_wildcard

TagPath = tuple[str, ...]
"""Names from the root element down, see `escape_element_name`; the last may be `text()` or `@attribute`."""

MAX_LITERAL_STEPS = 16
"""Steps of a prefix or a suffix; more would hardly be more selective, and would multiply the lookups."""

_STEP = re.compile(r"(//?)(@?)((?:\{[^{}]*\})?[^/{}@]+)")
_AXES = {axis.value: axis for axis in (Axis.CHILD, Axis.DESCENDANT)}
_ESCAPES = {
    ord(character): f"%{ord(character):02X}" for character in "%{}\0"
}  # not every database can store NUL
_ESCAPED = re.compile("%(25|7B|7D|00|2A)")


@dataclass(frozen=True, slots=True)
class LinearPath:
    """Steps from the document node down: an axis and a name test each, as in `lang.pattern`.

    Only the last step may be an attribute or a text node.
    """

    steps: tuple[tuple[Axis, str], ...]

    @property
    def text(self) -> str:
        """The path in XPath syntax; distinct for distinct paths."""
        return _format_steps(self.steps)

    @property
    def prefix(self) -> str:
        """The text of the steps before the first break, or of all steps if there is none."""
        return _format_steps(self.steps[: self._cuts()[0]])

    @property
    def suffix(self) -> str:
        """The names from the last break on, reversed; a wildcard at the break belongs to the middle."""
        return "/".join(
            _format_name_test(axis, test) for axis, test in reversed(self.steps[self._cuts()[1] :])
        )

    @property
    def middle(self) -> str | None:
        """The text between prefix and suffix, without leading slashes; None if they are adjacent."""
        start, end = self._cuts()
        return _format_steps(self.steps[start:end]).lstrip("/") or None

    def _cuts(self) -> tuple[int, int]:
        """Return the number of steps in the prefix, and the number of steps before the suffix."""
        breaks = [
            i for i, (axis, test) in enumerate(self.steps) if axis is Axis.DESCENDANT or is_wildcard(test)
        ]
        if not breaks:
            return min(len(self.steps), MAX_LITERAL_STEPS), len(self.steps)
        last = breaks[-1]
        suffix = last + 1 if is_wildcard(self.steps[last][1]) else last
        return min(breaks[0], MAX_LITERAL_STEPS), max(suffix, len(self.steps) - MAX_LITERAL_STEPS)


def parse_linear_path(text: str) -> LinearPath:
    """Return the linear path with this text."""
    return LinearPath(tuple(_parse_steps(text)))


# -- tag paths -----------------------------------------------------------------------------------------


def escape_element_name(name: str) -> str:
    """Return an element's name as it stands in a tag path, distinct from all names of attributes.

    A namespace may begin with `@`. Such a name is preceded by `}`, with which no name of an element begins.
    """
    return f"}}{name}" if name[0] == "@" else name


def format_tag_path(tag: TagPath) -> str:
    """Return the text of a tag path: that of the linear path which matches this tag path only."""
    return "".join(f"/{_format_tag_name(name)}" for name in tag)


def format_reversed_tag_path(tag: TagPath) -> str:
    """Return the names from the last one up to the root element: suffixes are prefixes of this text."""
    return "/".join(map(_format_tag_name, reversed(tag)))


def parse_tag_path(text: str) -> TagPath:
    """Return the tag path with this text."""
    return tuple(
        [
            f"@{name}" if axis is Axis.ATTRIBUTE else escape_element_name(name)
            for axis, name in _parse_steps(text)
        ]
    )


# -- matching ------------------------------------------------------------------------------------------


def lookup_keys(tag: TagPath, longest: tuple[int, int] | None = None) -> list[tuple[str, str]]:
    """Return the pairs of prefix and suffix of all linear paths that may match the tag path.

    There are 15 for a path of four names, and fewer if `longest` bounds the steps of prefixes and suffixes.
    """
    depth = len(tag)
    prefix_steps, suffix_steps = longest or (MAX_LITERAL_STEPS, MAX_LITERAL_STEPS)
    prefixes = ["", *accumulate(f"/{_format_tag_name(name)}" for name in tag[:prefix_steps])]
    suffixes = ["", *accumulate(map(_format_tag_name, tag[: -suffix_steps - 1 : -1]), "{}/{}".format)]
    broken = [
        (prefix, suffix) for p, prefix in enumerate(prefixes[:depth]) for suffix in suffixes[: depth - p + 1]
    ]
    return [(prefixes[depth], ""), *broken] if len(prefixes) > depth else broken


def path_matches(path: LinearPath, tag: TagPath) -> bool:
    """Return whether the path selects the last node of the tag path.

    Each run of steps between two `//` is matched as high up as possible, which leaves the most room for the
    rest; so only the last `//` is ever backtracked to, and the cost is at most the product of the lengths.
    """
    steps = path.steps
    count, depth = len(steps), len(tag)
    step = at = 0
    deep = -1  # the last `//` so far, and the position at which the step after it was tried
    deep_at = 0
    while at < depth:
        if count - step > depth - at:
            return False
        if step < count:
            axis, test = steps[step]
            name = tag[at]
            if axis is Axis.DESCENDANT:
                deep, deep_at = step, at
            if (test == name and name[0] != "@") or _passes_test(axis, test, name):  # the first test is fast
                step += 1
                at += 1
                continue
        if deep < 0:
            return False
        deep_at += 1
        step, at = deep, deep_at
    return step == count


def find_positions(
    path: LinearPath, tag: TagPath, at: tuple[int, ...], most: int = 4096
) -> list[tuple[int, ...]] | None:
    """Return the positions in the tag path of the steps numbered `at` (ascending), for every way to match.

    Both are counted from 1. The vectors are distinct and sorted; None if there are more than `most`.

    Vectors grow a step at a time, each with the set of positions, as a bit set, that the last step may have.
    Positions from which the rest of the path cannot be completed are excluded, so every partial vector
    becomes at least one result, and there are never more of them than results.
    """
    if not path_matches(path, tag):
        return []
    vectors: dict[tuple[int, ...], int] = {(): 1}  # the document is at position 0
    for number, (allowed, (axis, _)) in enumerate(
        zip(_completable_positions(path, tag), path.steps, strict=True), 1
    ):
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


def _completable_positions(path: LinearPath, tag: TagPath) -> list[int]:
    """Return for each step the bit set of positions from which later steps can reach the end."""
    completable: list[int] = []
    allowed = 1 << len(tag)
    for axis, test in reversed(path.steps):
        passing = [
            at for at, name in enumerate(tag, 1) if allowed >> at & 1 and _passes_test(axis, test, name)
        ]
        here = sum(1 << at for at in passing)
        completable.append(here)
        allowed = (1 << max(passing, default=0)) - 1 if axis is Axis.DESCENDANT else here >> 1
    completable.reverse()
    return completable


def _passes_test(axis: Axis, test: str, name: str) -> bool:
    """Return whether a name of a tag path passes the test of a step."""
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


def _format_steps(steps: tuple[tuple[Axis, str], ...]) -> str:
    return "".join(
        ("//" if axis is Axis.DESCENDANT else "/") + _format_name_test(axis, test) for axis, test in steps
    )


def _parse_steps(text: str) -> list[tuple[Axis, str]]:
    steps: list[tuple[Axis, str]] = []
    end = 0
    while end < len(text):
        step = _STEP.match(text, end)
        if step is None or step[1] + step[2] == "//@":
            raise ArgumentError(f"not a path, at character {end + 1}: {text!r}")
        steps.append((Axis.ATTRIBUTE if step[2] else _AXES[step[1]], _parse_name(step[3])))
        end = step.end()
    return steps


def _format_name_test(axis: Axis, test: str) -> str:
    return f"@{_format_name(test)}" if axis is Axis.ATTRIBUTE else _format_name(test)


def _format_tag_name(name: str) -> str:
    if name[0] == "@":
        return f"@{_format_name(name[1:])}"
    return _format_name(name[1:] if name[0] == "}" else name)


def _format_name(name: str) -> str:
    """Return the text of an element's name or a name test."""
    uri, brace, local = name.rpartition("}")
    return f"{{{_escape_uri(uri)}}}{local}" if brace else name


def _parse_name(text: str) -> str:
    uri, brace, local = text[1:].rpartition("}")
    if not brace:
        return text
    return (ANY_NAMESPACE if uri == "*" else _ESCAPED.sub(_unescape, uri)) + brace + local


def _escape_uri(uri: str) -> str:
    if uri == ANY_NAMESPACE:
        return "*"
    return "%2A" if uri == "*" else uri.translate(_ESCAPES)


def _unescape(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))
