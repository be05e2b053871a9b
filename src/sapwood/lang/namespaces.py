"""The prefixes that queries may use, and what names without a prefix mean.

In XPath 1.0 a name without a prefix has no namespace. Where namespaces change with every version of a format,
or do not matter, `"any"` instead of a mapping lets such names match in any namespace; together with
prefixes it is written as one of them, `{"*": "any", "cbc": "urn:…"}`. `*:name` means the same in any query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sapwood.errors import ArgumentError
from sapwood.lang.names import is_name

ANY: Literal["any"] = "any"
ANY_PREFIX = "*"
XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
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
        check_prefix(prefix, uri)
        bound = known.get(prefix, uri)
        if bound != uri:
            raise ArgumentError(f"the prefix {prefix!r} is bound to {bound!r} already, not to {uri!r}")
    known.update(added)


def check_prefix(prefix: str, uri: str) -> None:
    """Raise ArgumentError for a prefix that queries cannot use, or that XML reserves."""
    if not isinstance(prefix, str) or not isinstance(uri, str):
        raise ArgumentError(f"a prefix and a namespace must be strings: {prefix!r}: {uri!r}")
    if not prefix or not uri:
        raise ArgumentError(f"a prefix and a namespace must not be empty: {prefix!r}: {uri!r}")
    if prefix == ANY_PREFIX:
        if uri != ANY:
            raise ArgumentError(f"the prefix '*' can only be declared as 'any', not as {uri!r}")
    elif not is_name(prefix):
        raise ArgumentError(f"{prefix!r} cannot be a prefix: it is not an XML name without a colon")
    elif prefix == "xmlns":
        raise ArgumentError("the prefix 'xmlns' is reserved for declarations in XML; choose another prefix")
    elif prefix == "xml" and uri != XML_NAMESPACE:
        raise ArgumentError(
            f"the prefix 'xml' always stands for {XML_NAMESPACE}, not for {uri!r}; choose another prefix"
        )


def match_in_any(namespaces: Mapping[str, str]) -> bool:
    """Return whether names without a prefix match in any namespace."""
    return ANY_PREFIX in namespaces


def exact_prefixes(namespaces: Mapping[str, str]) -> dict[str, str]:
    """Return the prefixes that stand for one namespace, as other XPath processors take them."""
    return {prefix: uri for prefix, uri in namespaces.items() if prefix != ANY_PREFIX}
