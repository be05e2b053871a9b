"""Sapwood: match XML messages against very many standing XPath queries at once."""

from sapwood.engine import Explanation, Limits, Matcher, Matches, Node, Tuning, Why
from sapwood.errors import MessageError, QueryError, SapwoodError

__all__ = [
    "Explanation",
    "Limits",
    "Matcher",
    "Matches",
    "MessageError",
    "Node",
    "QueryError",
    "SapwoodError",
    "Tuning",
    "Why",
]
