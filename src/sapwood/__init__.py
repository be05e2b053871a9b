"""Sapwood: match and reshape XML messages for very many standing queries at once."""

from sapwood.broker import Broker, Delivery
from sapwood.engine import Explanation, Limits, Matcher, Matches, Node, Tuning, Why
from sapwood.errors import MessageError, QueryError, SapwoodError
from sapwood.transform.explain import PlanExplanation

__all__ = [
    "Broker",
    "Delivery",
    "Explanation",
    "Limits",
    "Matcher",
    "Matches",
    "MessageError",
    "Node",
    "PlanExplanation",
    "QueryError",
    "SapwoodError",
    "Tuning",
    "Why",
]
