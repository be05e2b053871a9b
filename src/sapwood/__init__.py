"""Sapwood: match, reshape and join XML messages for very many standing queries at once."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sapwood.broker import Broker
    from sapwood.broker.async_broker import AsyncBroker
    from sapwood.broker.delivery import Deliveries, Delivery
    from sapwood.engine import Explanation, Failure, FailureKind, Limits, Matcher, Matches, Node, Tuning, Why
    from sapwood.errors import LateMessage, MessageError, QueryError, SapwoodError
    from sapwood.join.explain import JoinExplanation
    from sapwood.join.results import Meeting
    from sapwood.join.state.state_stats import State, TemplateState
    from sapwood.transform.explain import PlanExplanation

    __version__: str

__all__ = [
    "AsyncBroker",
    "Broker",
    "Deliveries",
    "Delivery",
    "Explanation",
    "Failure",
    "FailureKind",
    "JoinExplanation",
    "LateMessage",
    "Limits",
    "Matcher",
    "Matches",
    "Meeting",
    "MessageError",
    "Node",
    "PlanExplanation",
    "QueryError",
    "SapwoodError",
    "State",
    "TemplateState",
    "Tuning",
    "Why",
]

# Names are imported on first access, so that matching does not load joins.
_HOMES = {
    "AsyncBroker": "sapwood.broker.async_broker",
    "Broker": "sapwood.broker",
    "Deliveries": "sapwood.broker.delivery",
    "Delivery": "sapwood.broker.delivery",
    "JoinExplanation": "sapwood.join.explain",
    "Meeting": "sapwood.join.results",
    "PlanExplanation": "sapwood.transform.explain",
    "State": "sapwood.join.state.state_stats",
    "TemplateState": "sapwood.join.state.state_stats",
    **dict.fromkeys(("LateMessage", "MessageError", "QueryError", "SapwoodError"), "sapwood.errors"),
    **dict.fromkeys(
        ("Explanation", "Failure", "FailureKind", "Limits", "Matcher", "Matches", "Node", "Tuning", "Why"),
        "sapwood.engine",
    ),
}


if not TYPE_CHECKING:  # which would take any name to be there

    def __getattr__(name: str) -> object:
        """The public name, imported from its module; `__version__` is the version that is installed."""
        if name == "__version__":
            from importlib.metadata import version

            value: object = version("sapwood")
        elif name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
