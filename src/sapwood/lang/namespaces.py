"""The prefixes that queries may use, and what names without a prefix mean.

In XPath 1.0 a name without a prefix has no namespace. Where namespaces change with every version of a format,
or do not matter, `"any"` instead of a mapping lets such names match in any namespace; together with
prefixes it is written as one of them, `{"*": "any", "cbc": "urn:…"}`. `*:name` means the same in any query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sapwood.errors import ArgumentError

ANY: Literal["any"] = "any"
ANY_PREFIX = "*"
Namespaces = Mapping[str, str] | Literal["any"]
"""prefix → URI, or `"any"`"""


def to_prefixes(namespaces: Namespaces | None) -> dict[str, str]:
    """Convert namespaces into a mapping from prefix to URI."""
    if namespaces is None:
        return {}
    if isinstance(namespaces, str):
        if namespaces != ANY:
            raise ArgumentError(f"namespaces are a mapping from prefix to URI, or 'any', not {namespaces!r}")
        return {ANY_PREFIX: ANY}
    return dict(namespaces)


def declare(known: dict[str, str], further: Namespaces, queries: int = 0) -> None:
    """Add prefixes to the known ones, or raise ArgumentError and add none.

    Where there are queries already, names without a prefix keep their meaning.
    """
    added = to_prefixes(further)
    if queries and ANY_PREFIX in added and ANY_PREFIX not in known:
        raise ArgumentError("declare namespaces 'any' before the first query: it changes what names mean")
    for prefix, uri in added.items():
        if not prefix or not uri:
            raise ArgumentError(f"a prefix and a namespace must not be empty: {prefix!r}: {uri!r}")
        if prefix == ANY_PREFIX and uri != ANY:
            raise ArgumentError(f"the prefix '*' can only be declared as 'any', not as {uri!r}")
        bound = known.get(prefix, uri)
        if bound != uri:
            raise ArgumentError(f"the prefix {prefix!r} is bound to {bound!r} already, not to {uri!r}")
    known.update(added)


def match_in_any(namespaces: Mapping[str, str]) -> bool:
    """Return whether names without a prefix match in any namespace."""
    return ANY_PREFIX in namespaces


def exact_prefixes(namespaces: Mapping[str, str]) -> dict[str, str]:
    """Return the prefixes that stand for one namespace, as other XPath processors take them."""
    return {prefix: uri for prefix, uri in namespaces.items() if prefix != ANY_PREFIX}
