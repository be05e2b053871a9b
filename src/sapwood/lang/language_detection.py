"""Which language a query is in, told by its first words, without what is needed to compile it."""

from __future__ import annotations

import re

from sapwood.lang.names import NAME

_NO_OPERATOR = r"(?!(?:and|or|div|mod)\b)"
FLWOR_START = re.compile(
    rf"\s*(?:<|\(:|(?:for|let)\s*(?:\$|\(:)|(?:for|let)\s+{_NO_OPERATOR}{NAME}\s+(?:in\b|:=)"
    rf"|(?:declare|import|xquery)\s+{_NO_OPERATOR}{NAME}\s)"
)
"""how a for-where-return query starts, and no XPath"""


def is_transformation(text: str) -> bool:
    """Whether a text is meant as a for-where-return query: no XPath starts like one."""
    return FLWOR_START.match(text) is not None


_MAY_BE_JOIN = re.compile(r"->|\{|\b(?:select|from|join|followed|publish|as)\b", re.IGNORECASE)


def is_join(text: str) -> bool:
    """Whether a text is meant as a join: no XPath 1.0 or for-where-return query is.

    But for two oddities, which XPath reads as a comparison with an element called `a-`, and as a product:
    `a->b`, and `SELECT * FROM //a`. A join whose SELECT was forgotten is one, too, if a wrong one.
    """
    if _MAY_BE_JOIN.search(text) is None:
        return False
    from sapwood.lang.xscl.lexer import has_signs_of_join  # here, because filters do without

    return has_signs_of_join(text)
