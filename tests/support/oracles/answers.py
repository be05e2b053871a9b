"""Questions asked twice, natively and in a form that lxml decides: both answers must be lxml's own."""

from __future__ import annotations

from sapwood import Matcher
from tests.support.oracles import lxml_oracle

NAMESPACES = {"p": "urn:p", "q": "urn:q"}


def answers(message: bytes | str, *queries: str) -> list[bool]:
    """Sapwood's answers, which must be the same however they are decided."""
    matcher = Matcher(NAMESPACES)
    for i, query in enumerate(queries):
        matcher.add(("native", i), query)
        matcher.add(("refined", i), f"count({query}) * 1 > 0" if query.startswith(("/", "(")) else query)
    matches = matcher.match(message)
    native = [("native", i) in matches for i in range(len(queries))]
    refined = [("refined", i) in matches for i in range(len(queries))]
    assert refined == native
    return native


def as_lxml_says(message: bytes | str, *queries: str) -> None:
    tree = lxml_oracle.parse(message, defaults=True)
    expected = [lxml_oracle.matches(tree, query, NAMESPACES) for query in queries]
    assert answers(message, *queries) == expected
