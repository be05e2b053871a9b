"""XSCL text: how it is told from other queries, its words, and what in it is no XPath.

Paths and conditions of XSCL are XPath but for three things: bindings (`author->a`, `author AS a`), variables
with primes (`x5'`), and `AND` in capitals. `Marked` takes them out of the text without moving anything, so
that XPath's own lexer and parser read the rest and errors point where they should.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

from sapwood.errors import QueryError
from sapwood.lang.languages import is_transformation
from sapwood.lang.names import NO_NAME_BEFORE
from sapwood.lang.scanning import END, WORD, found_instead
from sapwood.lang.xpath.lexer import Token, tokens_from

STREAMLESS = frozenset({"select", "from", "join", "followed", "publish", "as", "and", "or", "div", "mod"})
"""what no stream can be called, since it would be read as a word of the language"""
PRIME = "\U00010600"
"""a letter that stands for the quote at the end of x5' while XPath is read; nobody writes Linear A"""

NO_VARIABLE = rf"(?!(?:and|or|div|mod|join|followed|publish){END})"
_OTHER = rf"(?!(?:and|or|div|mod){END}){WORD}"
_BEFORE = NO_NAME_BEFORE

# -- is it XSCL? -----------------------------------------------------------------------------------------

_STRING = re.compile(r"\"[^\"]*\"|'[^']*'")
_STARTS = re.compile(
    rf"""\s*(?:
        from \s+ {_OTHER}
      | select (?: \s*[$"'] | \s+{_OTHER} | \s*\*\s*from{END}
                 | \s*<({WORD}(?::{WORD})?) \s* (?: /> | >.*</\1\s*> | {WORD}(?::{WORD})?\s*=\s*["'] ) )
    )""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_SIGN = re.compile(
    rf"""
      (?P<type>(?<=[\s\])])(?:cast|castable|treat)\s+as\s)    # XPath 2.0
    | ->\s*(?:{WORD}|[\[$]|\Z) | [\])]\s*->
    | (?<=[\s\]]){WORD}\s*\{{
    | {_BEFORE}followed\s+by{END}
    | (?<=[\s\])])(?:join|followed|publish|as)\s+{_OTHER}
    | (?:[\])]|{_BEFORE}{_OTHER})\s+publish\s*\Z
    """,
    re.VERBOSE | re.IGNORECASE,
)


_SELECTED = re.compile(rf"(?:</{WORD}(?::{WORD})?\s*|/)>\s*from{END}", re.IGNORECASE)


def has_signs_of_join(text: str) -> bool:
    """Whether a text that may be a join is one; see `languages.is_join`."""
    if is_transformation(text):
        return lacks_select(text)
    if _STARTS.match(text) is not None:
        return True
    return any(found.lastgroup != "type" for found in _SIGN.finditer(_STRING.sub("''", text)))


def lacks_select(text: str) -> bool:
    """Whether a text is `<r>…</r> FROM …`: a for-where-return query that starts like this ends with a tag."""
    if not text.lstrip().startswith("<") or text.rstrip().endswith(">"):
        return False
    return _SELECTED.search(text) is not None


# -- words -----------------------------------------------------------------------------------------------

_KEYWORD = re.compile(rf"\s*([^\W\d]\w*){END}")


def keyword(text: str, at: int) -> tuple[str, int]:
    """The word at a place, in capitals, and the place after it; empty if there is none."""
    found = _KEYWORD.match(text, at)
    return (found[1].upper(), found.end()) if found else ("", at)


# -- what is no XPath ------------------------------------------------------------------------------------

_MARK = re.compile(
    rf"""
      "[^"]*" | {_BEFORE}'[^']*'
    | (?P<prime>(?:(?<=[A-Za-z0-9_.\-])|(?<=[^\x00-\x7f]))'+)
    | (?P<arrow>->)\s*(?P<bound>{NO_VARIABLE}{WORD}'*)?
    | (?<=[\s\])])(?P<as>as)\s+(?P<named>{NO_VARIABLE}{WORD}'*)
    | {_BEFORE}(?<![/@$:\[(,])(?P<operator>and|or){END}
    """,
    re.VERBOSE | re.IGNORECASE,
)
_PRIMED = re.compile(rf"\${WORD}('+)")
_NAME = re.compile(WORD)


class WindowBinding(NamedTuple):
    """`->name` or `AS name`, and where; a prime in the name is `PRIME`."""

    name: str
    start: int
    name_at: int
    end: int


class Marked:
    """A query, from some place on as XPath reads it: bindings are blank, primes are letters."""

    def __init__(self, text: str, start: int) -> None:
        self.bindings: dict[int, WindowBinding] = {}
        """by where they start"""
        pieces: list[str] = []
        at = 0
        for found in _MARK.finditer(text, start):
            if found.lastgroup is None:  # a string
                continue
            pieces += text[at : found.start()], self._mark(found)
            at = found.end()
        self.text = "".join([*pieces, text[at:]])
        self._starts = list(self.bindings)
        self._original = text

    def _mark(self, found: re.Match[str]) -> str:
        if found["prime"]:
            return PRIME * len(found["prime"])
        if found["operator"]:
            return found["operator"].lower()
        group = "named" if found["as"] else "bound"
        if found[group] is None:
            raise _no_name(found)
        name = with_letters(found[group])
        self.bindings[found.start()] = WindowBinding(name, found.start(), found.start(group), found.end())
        return " " * len(found.group())

    def tokens(self, start: int) -> list[Token]:
        """XPath's tokens from a place on, and those of kind `binding` where there are any."""
        tokens = tokens_from(self.text, start)
        bindings = [
            Token("binding", self._original[binding.start : binding.end], binding.start, binding.end)
            for binding in self.within(start, tokens[-1].start)
        ]
        return sorted([*tokens, *bindings], key=lambda token: token.start) if bindings else tokens

    def within(self, start: int, end: int) -> list[WindowBinding]:
        """The bindings that start in a part of the text."""
        starts = self._starts[bisect_left(self._starts, start) : bisect_left(self._starts, end)]
        return [self.bindings[at] for at in starts]

    def error(self, reason: str, at: int, hint: str | None = None) -> QueryError:
        return QueryError(reason, self._original, at, hint)


def _no_name(found: re.Match[str]) -> QueryError:
    text, at = found.string, found.end()
    named = _NAME.match(text, at + 1) if text.startswith("$", at) else None
    hint = f"write ->{named.group()}" if named else "write //book->b; to compare, put a space before the >"
    return QueryError(f"expected a variable's name after '->', {found_instead(text, at)}", text, at, hint)


def with_letters(name: str) -> str:
    """A variable's name as XPath can read it."""
    return name.replace("'", PRIME)


def with_primes(text: str) -> str:
    """A text as it was written."""
    return text.replace(PRIME, "'")


def primes_marked(text: str) -> str:
    """A constructor whose variables, `$x5'`, are as XPath can read them."""
    return _PRIMED.sub(lambda found: with_letters(found.group()), text)


def as_written(error: QueryError, text: str) -> QueryError:
    """An error in what became of a text, as one in the text."""
    hint = with_primes(error.hint) if error.hint is not None else None
    return QueryError(with_primes(error.reason), text, error.position, hint)
