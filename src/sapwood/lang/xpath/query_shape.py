"""Shapes: queries with their paths, attribute names and constants left blank, and their compilation.

    /nitf/body[@id = 5]//p      shape  /▢[@▢ =▢]/▢      blanks  nitf/body   id   5   /p

Queries by the hundred thousand have a dozen shapes. A shape is compiled once, by the compiler of all queries,
with *marks* in the blanks, and what comes of it is a template, in which marks are replaced:

    marks       /_0_[@_1_ =7310002]/_3_
    key         {0}[(Has(/@{1},Test('=',{2}),False),)]{3}

That is safe because the compiler looks at names and constants for two purposes only. It compares them, since
equal conditions merge: so a template is for queries in which the same blanks are equal. And it sorts
conditions by their texts: so a template notes the texts that it found sorted, and is for queries in which
these ascend, too. They ascend strictly, so that conditions that differ go on to differ: `b/c` and `b/./c` are
equal, though no two of their blanks are. Other queries of the shape get further templates.

`generalize` refuses whatever needs more: functions that look into names or convert constants, `self::name`,
and all that has no exact pattern.

A blank is a whole run of steps, because neither their number nor their axes nor `*` matter to the rest of a
query. Blanks for single names were rejected: they make a thousand times as many shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count, pairwise
from typing import Any, NamedTuple

from sapwood.errors import QueryError
from sapwood.lang.namespaces import match_in_any
from sapwood.lang.pattern import (
    ANY_NAMESPACE,
    And,
    Axis,
    Condition,
    Has,
    Not,
    Or,
    Path,
    Position,
    Step,
    Test,
    format_constant,
    format_name,
    use_sort_key,
)
from sapwood.lang.query import Query, compile_query, pattern_key
from sapwood.lang.xpath.lexer import Token, tokenize
from sapwood.lang.xpath.parser import resolve_name

PATH, NAME, NUMBER, STRING = range(4)
MOST_TOKENS = 120
"""Of the marked text; there is less to be gained for longer queries, which rarely have a shape in common."""

# -- scanning --------------------------------------------------------------------------------------------

_ASCII_NAME = r"[A-Za-z_][A-Za-z0-9_.\-]*+"
_NAME = rf"{_ASCII_NAME}(?::{_ASCII_NAME})?+(?!\s*[:(]|[^\x00-\x7f])"  # no function, no axis
_TEST = rf"(?:{_NAME}|\*(?!:))"
_PATH = rf"{_TEST}(?://?{_TEST})*+"
_NO_OPERATOR = r"(?!(?:and|or|div|mod)(?![A-Za-z0-9_.\-]))"
# What comes before a blank says of which kind it is. The first assertion alone fails at most positions.
_BLANK = re.compile(
    rf"""
    (?<=[/\[(@=<>'"\ ])
    (
      (?<=/) /?{_PATH}
    | (?<=@) {_NAME}
    | (?<=[\[(]) {_PATH}
    | (?<=[=<>]) [ ]?-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?![0-9.eE])
    | (?<=[^=<>]\ ) {_NO_OPERATOR}{_PATH}
    | (?<=['"]) (?:(?<=[=,].)|(?<=[=,]\ .)) (?:(?<=')[^']+(?=')|(?<=")[^"]+(?="))
    )
    """,
    re.VERBOSE,
)

_LONGEST_REMEMBERED = 500


def split_blanks(text: str) -> Sequence[str]:
    """Split a text at its blanks: the odd items are what is in them, the even ones are its shape.

    What was split lately is remembered, since a query is checked, indexed and routed one after the other.
    """
    return _split_once(text) if len(text) <= _LONGEST_REMEMBERED else _BLANK.split(text)


@lru_cache(maxsize=2_048)
def _split_once(text: str) -> tuple[str, ...]:
    return tuple(_BLANK.split(text))


def is_one_path(pieces: Sequence[str]) -> bool:
    """Return whether a text that was split is one path without conditions: `/a//b/*`."""
    return len(pieces) == 3 and pieces[0] == "/" and not pieces[2]


def kinds_of(shape: Sequence[str]) -> tuple[int, ...]:
    """Return the kind of each blank of a shape."""
    return tuple(map(_kind_after, shape[:-1]))


def _kind_after(text: str) -> int:
    match text[-1:]:
        case "@":
            return NAME
        case "'" | '"':
            return STRING
        case "=" | "<" | ">":
            return NUMBER
    return PATH


class Names(dict[str, str]):
    """What names, and names after `@`, stand for, remembered; raises KeyError for an undeclared prefix."""

    _MOST = 20_000

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self.namespaces = namespaces
        self.in_any = match_in_any(namespaces)
        """whether names without a prefix match in any namespace"""

    def __missing__(self, name: str) -> str:
        if name in ("", "*"):  # what is between two slashes is empty
            symbol: str | None = name or Axis.DESCENDANT.value
        elif name.startswith("@"):
            symbol = f"@{self[name[1:]]}"
        else:
            symbol = resolve_name(name, self.namespaces)
        if symbol is None:
            raise KeyError(name)
        if len(self) >= self._MOST:
            self.clear()
        self[name] = symbol
        return symbol


class Blanks(NamedTuple):
    """What is in the blanks of a query."""

    values: list[Any]
    """the symbols of a path as a tuple, `@` and the name test of an attribute, or a constant"""
    texts: list[str]
    """as in the canonical text of a pattern; equal only for equal values of one kind"""


def read_blanks(kinds: Sequence[int], written: Sequence[str], names: Names) -> Blanks:
    """Read what is in the blanks of a query; raises KeyError if a name has to be compiled directly."""
    values: list[Any] = []
    texts: list[str] = []
    for kind, text in zip(kinds, written, strict=True):
        if kind == PATH:
            symbols = tuple(map(names.__getitem__, text.split("/")))
            values.append(symbols)
            texts.append("/" + text if not names.in_any and ":" not in text else _path_text(symbols, _quoted))
        elif kind == NAME:
            if names.in_any and ":" in text:  # of the others, each is a wildcard
                raise KeyError(text)
            values.append(names[f"@{text}"])
            texts.append(_quoted(names[text]))
        elif kind == NUMBER:
            number = float(text) + 0.0
            values.append(number)
            texts.append(repr(number))
        else:
            values.append(text)
            texts.append(repr(text))
    return Blanks(values, texts)


@lru_cache(maxsize=4_096)
def split_steps(symbols: tuple[str, ...]) -> tuple[tuple[Axis, str], ...]:
    """Return the axis and the name of each step of a path, given the symbols in its blank."""
    steps: list[tuple[Axis, str]] = []
    axis = Axis.CHILD
    for symbol in symbols:
        if symbol == Axis.DESCENDANT.value:
            axis = Axis.DESCENDANT
        else:
            steps.append((axis, symbol))
            axis = Axis.CHILD
    return tuple(steps)


def equal_blanks(texts: list[str]) -> tuple[int, ...] | None:
    """Return for each blank the first that is equal to it; None if they all differ."""
    return tuple(map(texts.index, texts)) if len(set(texts)) < len(texts) else None


def _quoted(name: str) -> str:
    """Write a name as `pattern.canonical_text` does."""
    return repr(name) if "}" in name else name


def _path_text(symbols: Sequence[str], write: Callable[[str], str]) -> str:
    text = ""
    for symbol in symbols:
        text += "//" if symbol == "//" else write(symbol) if text.endswith("//") else "/" + write(symbol)
    return text


# -- marks -----------------------------------------------------------------------------------------------

_FIRST_NUMBER = 7_310_000
_MARK = re.compile(r"_([0-9]+)_|731([0-9]{4})")
_MARK_IN_CANONICAL = re.compile(r"/?(?:'(?:\\x00\}\})?)?_([0-9]+)_'?|731([0-9]{4})\.0")  # once escaped
_MARK_IN_SHOWN = re.compile(r"(/?)(?:\*:)?'?_([0-9]+)_'?|731([0-9]{4})")


def mark_at(part: object) -> int | None:
    """Return the number of the blank that a name or a constant of a marked pattern stands for."""
    if isinstance(part, float):
        return int(part) - _FIRST_NUMBER if _FIRST_NUMBER <= part < _FIRST_NUMBER + 10_000 else None
    found = _MARK.fullmatch(str(part).removeprefix(f"{ANY_NAMESPACE}}}"))
    return int(found[1]) if found is not None and found[1] else None


# -- compilation -----------------------------------------------------------------------------------------

_FUNCTIONS = frozenset(
    {"boolean", "contains", "count", "false", "last", "node", "not", "position", "starts-with", "string"}
    | {"text", "true"}
)
"""those that do not look into names, and that do not convert constants"""


class PatternTemplate(NamedTuple):
    """The compiled form of all queries with one shape, equal blanks at the same places, and one order."""

    canonical: str
    """the canonical text, as a format for `Blanks.texts`"""
    is_path: bool
    """whether the pattern is one path"""
    sorted: tuple[tuple[str, ...], ...]
    """texts that ascend, as formats for `shown_texts`"""

    def key(self, blanks: Blanks) -> str:
        """Return the key of the query with these blanks."""
        return pattern_key(self.canonical.format(*blanks.texts), self.is_path)

    def fits(self, kinds: Sequence[int], blanks: Blanks) -> bool:
        """Return whether the conditions have the same order with these blanks."""
        if not self.sorted:
            return True
        shown = shown_texts(kinds, blanks)
        for formats in self.sorted:
            before = ""
            for text in formats:
                after = text.format(*shown)
                if not before < after:
                    return False
                before = after
        return True


def shown_texts(kinds: Sequence[int], blanks: Blanks) -> list[str]:
    """Return the texts by which patterns are sorted, two for each blank: of paths, the second is relative."""
    shown: list[str] = []
    for kind, value, text in zip(kinds, blanks.values, blanks.texts, strict=True):
        if kind == PATH:
            path = text if "}" not in text else _path_text(value, format_name)
            shown += path, f".{path}" if path.startswith("//") else path[1:]
        else:
            shown += format_name(value[1:]) if kind == NAME else format_constant(value), ""
    return shown


def generalize(
    shape: Sequence[str], blanks: Blanks, namespaces: Mapping[str, str]
) -> tuple[PatternTemplate, Query] | None:
    """Compile a shape for all queries whose blanks are equal and sort as these do; None if that is unsafe.

    Return the template, and the query with marks.
    """
    kinds = kinds_of(shape)
    text = _marked_text(shape, kinds, blanks, namespaces)
    if text is None:
        return None
    shown = shown_texts(kinds, blanks)
    with use_sort_key(lambda pattern: _shown_format(str(pattern), kinds).format(*shown)):
        try:
            query = compile_query(text, namespaces)
        except QueryError:
            return None
    found: list[tuple[str, ...]] = []
    conditions = _general(query.condition, kinds, found)
    if not query.exact or not conditions or not all(_general(path, kinds, found) for path in query.paths):
        return None
    if len(query.paths) > 1:
        found.append(tuple(_shown_format(str(path), kinds) for path in query.paths))
    canonical, is_path = query.canonical
    template = PatternTemplate(_canonical_format(canonical), is_path, tuple(dict.fromkeys(found)))
    return (template, query) if template.fits(kinds, blanks) else None


def _marked_text(
    shape: Sequence[str], kinds: Sequence[int], blanks: Blanks, namespaces: Mapping[str, str]
) -> str | None:
    """The shape with marks; None unless its tokens are those of every query of the shape, and safe."""
    if len(kinds) > MOST_TOKENS:
        return None
    text = ""
    marked: list[int] = []
    for kind, number, before in zip(kinds, equal_blanks(blanks.texts) or count(), shape, strict=False):
        if kind == STRING and re.search(r"[<>]=\s*.\Z", before):  # which converts to a number
            return None
        text += before
        marked.append(len(text))
        text += str(_FIRST_NUMBER + number) if kind == NUMBER else f"_{number}_"
    text += shape[-1]
    try:
        tokens = tokenize(text)
    except QueryError:
        return None
    if len(tokens) > MOST_TOKENS or [at for at in map(_marked_at, tokens) if at is not None] != marked:
        return None
    safe = all(_is_safe(token, following, namespaces) for token, following in pairwise(tokens))
    return text if safe else None


def _marked_at(token: Token) -> int | None:
    """The position of the mark that a token is."""
    quote = token.kind == "literal"
    text = token.text[1:-1] if quote else token.text
    return token.start + quote if _MARK.fullmatch(text) else None


def _is_safe(token: Token, following: Token, namespaces: Mapping[str, str]) -> bool:
    """Whether a token outside of the blanks does not depend on what is in them, and is not taken for one."""
    if _marked_at(token) is not None:
        return True
    match token.kind:
        case "literal":
            return False
        case "number":
            return _MARK.search(repr(float(token.text))) is None
        case "name" if following.text == "(":
            return token.text in _FUNCTIONS
        case "name":
            return _MARK.search(resolve_name(token.text, namespaces) or "") is None
    return True


def _general(part: Path | Condition, kinds: Sequence[int], found: list[tuple[str, ...]]) -> bool:
    """Whether a pattern holds for all that may be in its blanks; lists what is sorted in `found`."""
    match part:
        case Path(steps=steps):
            return all(_general_step(step, kinds, found) for step in steps)
        case Has(path=path, test=test):
            return _general_test(test, kinds) and _general(path, kinds, found)
        case Position(n=n):
            return n == n  # NaN is what a string is converted to
        case Not(item=item):
            return _general(item, kinds, found)
        case And(items=items) | Or(items=items):
            if len(items) > 1:
                found.append(tuple(_shown_format(str(item), kinds) for item in items))
            return all(_general(item, kinds, found) for item in items)
    return False


def _general_step(step: Step, kinds: Sequence[int], found: list[tuple[str, ...]]) -> bool:
    if not all(_general(condition, kinds, found) for condition in step.conditions):
        return False
    number = mark_at(step.test)
    if number is None:
        return True
    # Of another axis than `/` if `//.` precedes; then the first axis in the blank is not that of the step.
    return kinds[number] == NAME or step.axis is Axis.CHILD


def _general_test(test: Test | None, kinds: Sequence[int]) -> bool:
    """Whether the constant of a test is a mark: only such constants are known to differ from others."""
    number = mark_at(test.value) if test is not None else None
    return test is None or (number is not None and kinds[number] in (NUMBER, STRING))


def _canonical_format(text: str) -> str:
    """The canonical text of a marked pattern as a format for `Blanks.texts`."""
    return _MARK_IN_CANONICAL.sub(lambda mark: f"{{{int(mark[1] or mark[2])}}}", _escape(text))


def _shown_format(text: str, kinds: Sequence[int]) -> str:
    """The text of a marked pattern as a format for `shown_texts`."""

    def replace(mark: re.Match[str]) -> str:
        number = int(mark[2] or mark[3])
        relative = kinds[number] == PATH and not mark[1]
        return f"{{{2 * number + relative}}}"

    return _MARK_IN_SHOWN.sub(replace, _escape(text))


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
