"""The lexer of XSCL: recognition of joins, keywords, and the parts that are not XPath.

Paths and conditions of XSCL are XPath but for three things: bindings (`author->a`, `author AS a`), variables
with primes (`x5'`), and `AND` in capitals. `MarkedText` blanks them out without moving anything, so that
XPath's own lexer and parser read the rest and errors point where they should.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

from sapwood.errors import QueryError
from sapwood.lang.languages import is_transformation
from sapwood.lang.names import NO_NAME_BEFORE
from sapwood.lang.scanning import END, WORD, describe_found
from sapwood.lang.xpath.lexer import Token, tokens_from

STREAMLESS = frozenset({"select", "from", "join", "followed", "publish", "as", "and", "or", "div", "mod"})
"""keywords, which no stream can be called"""
PRIME = "\U00010600"
"""a letter of Linear A, which stands for the quote at the end of x5' while XPath is read"""

NO_VARIABLE = rf"(?!(?:and|or|div|mod|join|followed|publish){END})"
_OTHER = rf"(?!(?:and|or|div|mod){END}){WORD}"
_BEFORE = NO_NAME_BEFORE

# -- recognition ----------------------------------------------------------------------------------------

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
    """Return whether a text that may be a join is one; see `languages.is_join`."""
    if is_transformation(text):
        return lacks_select(text)
    if _STARTS.match(text) is not None:
        return True
    return any(found.lastgroup != "type" for found in _SIGN.finditer(_STRING.sub("''", text)))


def lacks_select(text: str) -> bool:
    """Return whether a text is `<r>…</r> FROM …`; for-where-return queries that start so end with a tag."""
    if not text.lstrip().startswith("<") or text.rstrip().endswith(">"):
        return False
    return _SELECTED.search(text) is not None


# -- words -----------------------------------------------------------------------------------------------

_KEYWORD = re.compile(rf"\s*([^\W\d]\w*){END}")


def keyword(text: str, at: int) -> tuple[str, int]:
    """Return the word at a position in capitals, empty if there is none, and the position after it."""
    found = _KEYWORD.match(text, at)
    return (found[1].upper(), found.end()) if found else ("", at)


# -- bindings and primes ----------------------------------------------------------------------------------

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


class StepBinding(NamedTuple):
    """A variable binding, `->name` or `AS name`, and its position; a prime in the name is `PRIME`."""

    name: str
    start: int
    name_at: int
    end: int


class MarkedText:
    """The text of a query as XPath's lexer reads it: bindings are blank, primes are letters."""

    def __init__(self, text: str, start: int) -> None:
        self.bindings: dict[int, StepBinding] = {}
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
        name = encode_primes(found[group])
        self.bindings[found.start()] = StepBinding(name, found.start(), found.start(group), found.end())
        return " " * len(found.group())

    def tokens(self, start: int) -> list[Token]:
        """Return XPath's tokens from a position on, with tokens of kind `binding` among them."""
        tokens = tokens_from(self.text, start)
        bindings = [
            Token("binding", self._original[binding.start : binding.end], binding.start, binding.end)
            for binding in self.within(start, tokens[-1].start)
        ]
        return sorted([*tokens, *bindings], key=lambda token: token.start) if bindings else tokens

    def within(self, start: int, end: int) -> list[StepBinding]:
        """Return the bindings that start in a part of the text."""
        starts = self._starts[bisect_left(self._starts, start) : bisect_left(self._starts, end)]
        return [self.bindings[at] for at in starts]

    def error(self, reason: str, at: int, hint: str | None = None) -> QueryError:
        return QueryError(reason, self._original, at, hint)


def _no_name(found: re.Match[str]) -> QueryError:
    text, at = found.string, found.end()
    named = _NAME.match(text, at + 1) if text.startswith("$", at) else None
    hint = f"write ->{named.group()}" if named else "write //book->b; to compare, put a space before the >"
    return QueryError(f"expected a variable's name after '->', {describe_found(text, at)}", text, at, hint)


def encode_primes(name: str) -> str:
    """Replace the primes in a variable's name by letters that XPath can read."""
    return name.replace("'", PRIME)


def decode_primes(text: str) -> str:
    """Replace the letters that stand for primes by primes."""
    return text.replace(PRIME, "'")


def mark_primes(text: str) -> str:
    """Replace the primes of a constructor's variables, `$x5'`, by letters that XPath can read."""
    return _PRIMED.sub(lambda found: encode_primes(found.group()), text)


def restore_error(error: QueryError, text: str) -> QueryError:
    """Convert an error in a marked text into one in the original text."""
    hint = decode_primes(error.hint) if error.hint is not None else None
    return QueryError(decode_primes(error.reason), text, error.position, hint)
