"""Hints in query errors: what to write instead of constructs that the languages do not have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from difflib import get_close_matches

from sapwood.lang.xpath.ast import RETURN_TYPES

_NO_DATES = (
    "XPath 1.0 has no dates: compare those of ISO 8601 as numbers, translate(d, '-', '') > 20240131, "
    "or a part of them, substring(d, 1, 4) = 2024"
)
_NO_CLOCK = f"XPath 1.0 has no current time. {_NO_DATES}"
XPATH2_FUNCTIONS = {
    **dict.fromkeys(("date", "dateTime", "time", "gYear", "gYearMonth", "duration"), _NO_DATES),
    **dict.fromkeys(("year-from-date", "month-from-date", "day-from-date", "format-date"), _NO_DATES),
    **dict.fromkeys(("year-from-dateTime", "month-from-dateTime", "day-from-dateTime"), _NO_DATES),
    **dict.fromkeys(("current-date", "current-dateTime", "current-time", "now", "today"), _NO_CLOCK),
    **dict.fromkeys(("integer", "int", "long", "decimal", "double", "float"), "write number(x)"),
    "ends-with": "XPath 1.0: substring(s, string-length(s) - string-length(t) + 1) = t",
    "matches": "regular expressions came with XPath 2.0; use contains() or starts-with()",
    "replace": "regular expressions came with XPath 2.0; translate() replaces single characters",
    "tokenize": "regular expressions came with XPath 2.0; use contains(concat(' ', s, ' '), ' word ')",
    "lower-case": "XPath 1.0: translate(s, 'ABC…', 'abc…')",
    "upper-case": "XPath 1.0: translate(s, 'abc…', 'ABC…')",
    "exists": "in XPath 1.0 a path by itself is true where it exists: write [path]",
    "empty": "write not(path)",
    "avg": "XPath 1.0: sum(path) div count(path)",
    "max": "XPath 1.0: path[not(. < path)]",
    "min": "XPath 1.0: path[not(. > path)]",
    "abs": "XPath 1.0: number arithmetic only; compare both signs",
    "distinct-values": "came with XPath 2.0",
    "string-join": "XPath 1.0: concat(a, b, …)",
    "data": "write string(path) or number(path)",
    "node-name": "write name()",
}
XPATH2_OPERATORS = {
    "eq": "=",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "is": "count(a | b) = 1",
    "idiv": "floor(a div b)",
    "union": "|",
    "to": "position() >= m and position() <= n",
}
XPATH2_KEYWORDS = {
    "if": "XPath 2.0 conditionals are not in XPath 1.0: use (a and b) or (not(a) and c)",
    "for": "'for … return' is no XPath 1.0 filter: it makes new messages, at a Broker",
    "some": "comparisons in XPath 1.0 are already existential: write path = value",
    "every": "write not(path[not(condition)])",
    "let": "'let' is not XPath 1.0",
    "element": "write * for any element",
    "item": "write node()",
    "document-node": "write /",
}
# What XQuery has and for-where-return queries do not, by the word it starts with.
XQUERY_CLAUSES = {
    "order": "'order by'",
    "stable": "'order by'",
    "group": "'group by'",
    "count": "a 'count' clause",
    "declare": "declarations before the query",
    "import": "imports before the query",
    "xquery": "a version before the query",
    "where": "a second 'where'",
    "for": "a 'for' after 'where'",
    "let": "a 'let' after 'where'",
}
XQUERY_BINDINGS = {
    "at": "'at' to count bindings",
    "as": "types of variables",
    "allowing": "'allowing empty'",
}
XQUERY_EXPRESSIONS = {
    "if": "'if … then … else'",
    "some": "'some … satisfies'",
    "every": "'every … satisfies'",
    "typeswitch": "'typeswitch'",
    "switch": "'switch'",
    "element": "computed constructors",
    "attribute": "computed constructors",
    "text": "computed constructors",
    "document": "computed constructors",
    "comment": "computed constructors",
    "processing-instruction": "computed constructors",
    "namespace": "computed constructors",
    "(:": "comments",
}
# What other languages have where a join goes on with JOIN, FOLLOWED BY, PUBLISH or its end.
_NO_OUTER = "there are no outer joins: write JOIN{…}"
_IN_BRACES = "conditions stand in brackets after a step, or in the braces of JOIN"
NO_LINKS = {
    "SELECT": "SELECT comes first: SELECT … FROM … JOIN{…} …",
    "FROM": "FROM comes first: SELECT … FROM … JOIN{…} …",
    "BY": "write FOLLOWED BY{…}",
    "PRECEDED": "exchange the blocks, and write FOLLOWED BY{…}",
    "INNER": "all joins are inner ones: write JOIN{…}",
    "CROSS": "a join needs an equality: write JOIN{x = y, 1 day}",
    "NATURAL": "a join names what is equal: write JOIN{x = y, 1 day}",
    **dict.fromkeys(("LEFT", "RIGHT", "FULL", "OUTER"), _NO_OUTER),
    **dict.fromkeys(("WHERE", "HAVING", "ON"), _IN_BRACES),
    "WITHIN": "the window stands in the braces: JOIN{x = y, 1 day}",
    "GROUP": "there is no GROUP BY: every combination of messages has a result of its own",
    "ORDER": "there is no ORDER BY: results come when their last message does",
    "LIMIT": "there is no LIMIT: results are made for as long as messages come",
    "INTO": "write PUBLISH and the name of a stream",
    ";": "drop the ;",
    ",": "link blocks by JOIN{x = y, 1 day} or FOLLOWED BY{x = y, 1 day}",
}
# The same after the first operand of a condition between blocks.
NO_COMPARATORS = {
    "LIKE": "write x = y, or contains(x, 'text') for a constant",
    "CONTAINS": "write x = y, or contains(x, 'text') for a constant",
    "IN": "comparisons are already existential: write x = y",
    "IS": "write =",
    "WITHIN": "write a comma before the window: {x = y, 1 day}",
    ";": "write a comma before the window: {x = y, 1 day}",
}
# The same after an operand of XPath, in small letters.
_NO_OPERATORS = {
    "xor": "write (a or b) and not(a and b)",
    "nor": "write not(a or b)",
    "like": "write contains(x, 'text') or starts-with(x, 'text')",
    "in": "write x = 'a' or x = 'b'",
    "between": "write x >= a and x <= b",
    "contains": "write contains(x, 'text')",
}
_SMALL_LETTERS = frozenset({"and", "or", "div", "mod"})
_WORD = re.compile(r"[A-Za-z][\w\-]*")
_LITERAL = re.compile(r"\"[^\"]*\"|'[^']*'")
_AFTER_NOT = re.compile(r"(?<![\w.\-:/@$])not\s*\Z", re.IGNORECASE)
_AFTER_COMPARISON = re.compile(r"[=<>]\s*\([^()]*\Z")
_NO_SEQUENCES = "XPath 1.0 has no sequences: write a | b for nodes, and x = 'a' or x = 'b' for values"
_NO_SEQUENCES_MADE = "XPath 1.0 has no sequences; what is returned goes one by one: <made>{$v/a}{$v/b}</made>"
AXES = frozenset(
    {
        "ancestor",
        "ancestor-or-self",
        "attribute",
        "child",
        "descendant",
        "descendant-or-self",
        "following",
        "following-sibling",
        "namespace",
        "parent",
        "preceding",
        "preceding-sibling",
        "self",
    }
)


def hint_unknown_function(name: str) -> str | None:
    local = name.rpartition(":")[2]
    if local not in RETURN_TYPES and local.lower() in RETURN_TYPES:
        return f"write {local.lower()}() in small letters"
    return XPATH2_FUNCTIONS.get(local) or XPATH2_KEYWORDS.get(local) or did_you_mean(local, RETURN_TYPES)


def hint_misplaced(text: str, at: int, making: bool = False) -> str | None:
    """Return a hint for a token that is not allowed at a position, judging by the text around it.

    `making` says that the expression may be one whose value is written into a message.
    """
    before = text[:at]
    word = _WORD.match(text, at)
    if word is not None and before[-1:] in ("'", '"'):
        return quote_inside(text, at)
    if text[at : at + 1] in ("'", '"') and before[-1:] == text[at]:
        return f"a {text[at]} is not doubled inside a string: {_other_quotes(text[at])}"
    if _AFTER_NOT.search(before):
        return "not is a function: write not(…)"
    if word is not None and word[0].lower() in _SMALL_LETTERS and not word[0].islower():
        return f"write {word[0].lower()!r} in small letters"
    if word is not None and word[0].lower() in _NO_OPERATORS:
        return _NO_OPERATORS[word[0].lower()]
    if word is not None and re.match(r"is\s+(?:not\s+)?null\b", text[at:], re.IGNORECASE):
        return "write not(x) where nothing may be, and x where something must be"
    if text.startswith(">", at) and before.endswith("<"):
        return "write != instead of <>"
    if text.startswith("|", at) and before.endswith("|"):
        return "write 'or' between conditions, | between paths, and concat(a, b) for strings"
    if text.startswith(",", at):
        return _NO_SEQUENCES_MADE if making and not _AFTER_COMPARISON.search(before) else _NO_SEQUENCES
    return None


def quote_inside(text: str, before: int) -> str | None:
    """Return a hint if a quote seems to close a string that it was meant to be part of."""
    for literal in _LITERAL.finditer(text, 0, before):
        following = text[literal.end() : literal.end() + 1]
        if following.isalnum() and _WORD.match(text, literal.end()) and not _is_operator(text, literal.end()):
            quote = literal[0][0]
            return f"the {quote} before {following!r} closes the string: {_other_quotes(quote)}"
    return None


def _is_operator(text: str, at: int) -> bool:
    word = _WORD.match(text, at)
    return word is not None and word[0] in _SMALL_LETTERS


def _other_quotes(quote: str) -> str:
    if quote == "'":
        return 'put it into double quotes, "it\'s"'
    return "put it into single quotes, 'say \"yes\"'"


# How prefixes are declared: in Python, or on a command line that has an option for it.
_DECLARATION: ContextVar[str] = ContextVar("declaration", default="namespaces={{{prefix!r}: '…'}}")


def set_declaration_form(form: str) -> None:
    """Set the form in which hints suggest to declare a prefix; {prefix} stands for its name."""
    _DECLARATION.set(form)


def hint_undeclared(prefix: str, known: Iterable[str], before: str = "") -> str:
    """Return a hint how to declare a prefix, and which are declared."""
    form = _DECLARATION.get().format(prefix=prefix)
    return f"{before}declare it with {form} (declared: {', '.join(sorted(known)) or 'none'})"


# What takes queries that are not filters: a class in Python, or a command.
_OTHER_LANGUAGES: ContextVar[tuple[str, str]] = ContextVar(
    "other_languages",
    default=(
        "a Matcher takes XPath 1.0 filters; a Broker takes both",
        "a Matcher takes XPath 1.0 filters; a Broker takes joins, too",
    ),
)


def set_other_language_hints(transformation: str, join: str) -> None:
    """Set the hints for a for-where-return query and for a join where only filters are accepted."""
    _OTHER_LANGUAGES.set((transformation, join))


def hint_transformation() -> str:
    """Return a hint what to do with a for-where-return query where only filters are accepted."""
    return _OTHER_LANGUAGES.get()[0]


def hint_join() -> str:
    """Return a hint what to do with a join where only filters are accepted."""
    return _OTHER_LANGUAGES.get()[1]


def hint_unknown_variable(name: str, known: Iterable[str], sign: str = "$") -> str:
    """Return a hint that names the variables in scope, the closest first."""
    names = [f"{sign}{each}" for each in known]
    close = did_you_mean(f"{sign}{name}", names)
    there_are = f"there are {', '.join(names)}"
    return f"{close} {there_are[0].upper()}{there_are[1:]}" if close else there_are


def hint_unbound_variable(name: str, known: Iterable[str], sign: str = "") -> str:
    """Return such a hint for a join, where an unknown variable may be meant as an element."""
    names = list(known)
    if not names:
        return "bind one in a block: //book->b"
    origin, _, element = name.partition(".")
    if element and origin in names:
        return f"write {sign}{origin}/{element}"
    hint = hint_unknown_variable(name, names, sign)
    if not hint.startswith("there are"):
        return hint
    return f"{hint}; for an element write {sign}{names[0]}/{name}"


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a hint that names the known word closest to the given one, if any is close."""
    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else None
