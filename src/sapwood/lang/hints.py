"""What to write instead of what XPath 1.0 does not have."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from sapwood.lang.ast import RETURN_TYPES

XPATH2_FUNCTIONS = {
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


def unknown_function(name: str) -> str | None:
    local = name.rpartition(":")[2]
    return XPATH2_FUNCTIONS.get(local) or XPATH2_KEYWORDS.get(local) or did_you_mean(local, RETURN_TYPES)


def unknown_variable(name: str, known: Iterable[str], sign: str = "$") -> str:
    """A hint naming the variables there are, the closest first of all."""
    names = [f"{sign}{each}" for each in known]
    close = did_you_mean(f"{sign}{name}", names)
    there_are = f"there are {', '.join(names)}"
    return f"{close} {there_are[0].upper()}{there_are[1:]}" if close else there_are


def unbound_variable(name: str, known: Iterable[str], sign: str = "") -> str:
    """The same for a join, where what is no variable may be meant as an element."""
    names = list(known)
    if not names:
        return "bind one in a block: //book->b"
    origin, _, element = name.partition(".")
    if element and origin in names:
        return f"write {sign}{origin}/{element}"
    hint = unknown_variable(name, names, sign)
    if not hint.startswith("there are"):
        return hint
    return f"{hint}; for an element write {sign}{names[0]}/{name}"


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint naming the known word closest to the one written, if any is close."""
    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else None
