"""Sapwood: match, reshape and join XML messages for very many standing queries at once."""

from sapwood.broker import Broker
from sapwood.deliveries import Deliveries, Delivery
from sapwood.engine import Explanation, Failure, FailureKind, Limits, Matcher, Matches, Node, Tuning, Why
from sapwood.errors import LateMessage, MessageError, QueryError, SapwoodError
from sapwood.join.explain import JoinExplanation
from sapwood.join.meetings import Meeting
from sapwood.join.state import State, TemplateState
from sapwood.transform.explain import PlanExplanation

__all__ = [
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
