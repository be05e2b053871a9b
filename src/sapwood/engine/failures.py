"""What fails for one query on one message: a fact of that query alone, that its neighbours do not feel."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

_log = logging.getLogger(__name__)


class FailureKind(StrEnum):
    """Why a query has no answer on a message."""

    UNDECIDED = "undecided"
    """lxml could not read the message, or not evaluate the query on it"""
    OVER_BUDGET = "over budget"
    """the query took more time or memory than `Limits` allow"""
    SUSPENDED = "suspended"
    """the query went over its budget so often that it is not evaluated any more, until it is resumed"""
    FAILED = "failed"
    """a transformation or a join could not make its output, or made too much"""


@dataclass(frozen=True, slots=True)
class Failure:
    """A subscription that has no answer on a message, and why."""

    subscription: Hashable
    kind: FailureKind
    reason: str
    message: Hashable = None
    """the message's id, where a broker has published it"""

    def __str__(self) -> str:
        return f"{self.subscription}: {self.kind}: {self.reason}"


class QueryProblem(NamedTuple):
    """The same before anybody has asked who subscribed to the query."""

    kind: FailureKind
    reason: str


def report_defect(error: Exception, query: str) -> QueryProblem:
    """A failure that nobody expects: logged with its traceback, and told with the exception's type."""
    _log.error("a query failed by an error of Sapwood: %s", query[:200], exc_info=error)
    return QueryProblem(FailureKind.FAILED, f"{type(error).__name__}: {error}")
