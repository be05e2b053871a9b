"""The matching engine: all queries in one index, every message read once."""

from sapwood.engine.diagnostics.explain import Explanation
from sapwood.engine.diagnostics.why import Why
from sapwood.engine.failures import Failure, FailureKind
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.matcher import Matcher
from sapwood.engine.matches import Matches, Node

__all__ = ["Explanation", "Failure", "FailureKind", "Limits", "Matcher", "Matches", "Node", "Tuning", "Why"]
