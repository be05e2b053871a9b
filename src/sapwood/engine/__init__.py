"""The matching engine: all queries in one index, every message read once."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sapwood.engine.diagnostics.explain import Explanation
    from sapwood.engine.diagnostics.why import Why
    from sapwood.engine.failures import Failure, FailureKind
    from sapwood.engine.limits import Limits, Tuning
    from sapwood.engine.matcher import Matcher
    from sapwood.engine.matches import Matches, Node

__all__ = ["Explanation", "Failure", "FailureKind", "Limits", "Matcher", "Matches", "Node", "Tuning", "Why"]

# Names are imported on first access, so that `sapwood --version` asks for the kernel without the matcher.
_HOMES = {
    "Explanation": "diagnostics.explain",
    "Failure": "failures",
    "FailureKind": "failures",
    "Limits": "limits",
    "Matcher": "matcher",
    "Matches": "matches",
    "Node": "matches",
    "Tuning": "limits",
    "Why": "diagnostics.why",
}


if not TYPE_CHECKING:  # which would take any name to be there

    def __getattr__(name: str) -> object:
        """The public name, imported from its module."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
