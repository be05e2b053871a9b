"""Failures of one subscription on one message, which do not affect others."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

_log = logging.getLogger(__name__)


class FailureKind(StrEnum):
    """The reason why a query has no result on a message, or a result that was not processed."""

    UNDECIDED = "undecided"
    """lxml could not read the message, or not evaluate the query on it"""
    OVER_BUDGET = "over budget"
    """the query took more time or memory than `Limits` allow"""
    SUSPENDED = "suspended"
    """the query exceeded its budget so often that it is not evaluated until it is resumed"""
    FAILED = "failed"
    """a transformation or a join could not make its output, or its output is too large"""
    CALLBACK = "callback failed"
    """the callback of the subscription raised an exception when it was called with a delivery"""


class QueryProblem(NamedTuple):
    """A failure of a query, before it is attributed to the subscriptions to it."""

    kind: FailureKind
    reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A subscription that failed on a message, and why."""

    subscription: Hashable
    kind: FailureKind
    reason: str
    message: Hashable = None
    """the message's id, where a broker has published it"""

    def __str__(self) -> str:
        return f"{self.subscription}: {self.kind}: {self.reason}"


def report_defect(error: Exception, query: str) -> QueryProblem:
    """Log an unexpected exception with its traceback, and return it as the query's failure."""
    _log.error("a defect of Sapwood in the evaluation of a query: %s", query[:200], exc_info=error)
    return QueryProblem(FailureKind.FAILED, f"{type(error).__name__}: {error}")
