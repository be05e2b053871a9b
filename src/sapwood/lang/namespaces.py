"""The prefixes that queries may use."""

from __future__ import annotations

from collections.abc import Mapping


def declare(known: dict[str, str], further: Mapping[str, str]) -> None:
    """Adds prefixes to those known, all or, with a ValueError that says why, none."""
    for prefix, uri in further.items():
        if not prefix or not uri:
            raise ValueError(f"a prefix and a namespace must not be empty: {prefix!r}: {uri!r}")
        bound = known.get(prefix, uri)
        if bound != uri:
            raise ValueError(f"the prefix {prefix!r} is bound to {bound!r} already, not to {uri!r}")
    known.update(further)
