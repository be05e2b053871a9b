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


def is_flwor(text: str) -> bool:
    """Whether a text is meant as a for-where-return query: no XPath starts like one."""
    return FLWOR_START.match(text) is not None
