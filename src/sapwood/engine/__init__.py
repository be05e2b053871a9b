"""The shared matcher: all queries in one automaton, every message read once."""

from sapwood.engine.explain import Explanation
from sapwood.engine.failures import Failure, FailureKind
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.matcher import Matcher
from sapwood.engine.matches import Matches, Node
from sapwood.engine.why import Why

__all__ = ["Explanation", "Failure", "FailureKind", "Limits", "Matcher", "Matches", "Node", "Tuning", "Why"]
