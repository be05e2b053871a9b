"""Routes for tests: nothing but a key."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class SimpleRoute:
    """A route that is its key."""

    key: int


def route(name: str) -> SimpleRoute:
    """Return the route of a name, with a key of 128 bits."""
    return SimpleRoute(int.from_bytes(blake2b(name.encode(), digest_size=16).digest(), "big"))
