"""Range checks for the parameters of generators."""

from __future__ import annotations

from collections.abc import Collection

from sapwood.errors import ArgumentError


def at_least(bound: float, **parameters: float) -> None:
    """Raise ArgumentError for the first parameter below the bound."""
    for name, value in parameters.items():
        if not value >= bound:
            raise ArgumentError(f"{name} must be at least {bound:g}, not {value!r}")


def probabilities(**parameters: float) -> None:
    """Raise ArgumentError for the first parameter outside 0 to 1."""
    for name, value in parameters.items():
        if not 0 <= value <= 1:
            raise ArgumentError(f"{name} must be a probability from 0 to 1, not {value!r}")


def some_of(allowed: Collection[str], **parameters: Collection[str]) -> None:
    """Raise ArgumentError for the first parameter that is empty or holds a value that is not allowed."""
    for name, chosen in parameters.items():
        if isinstance(chosen, str) or not chosen or any(item not in allowed for item in chosen):
            raise ArgumentError(f"{name} must be a non-empty choice of {', '.join(allowed)}, not {chosen!r}")
