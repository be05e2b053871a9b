"""For-where-return queries written by hand, a table for each part of the language, for Saxon to decide."""

from __future__ import annotations

from tests.support.cases.transform_cases.bindings import BEYOND, ON_THE_WAY, VARIABLES, WHERE
from tests.support.cases.transform_cases.case import Case
from tests.support.cases.transform_cases.messages import EDGES, MESSAGES, NAMESPACED
from tests.support.cases.transform_cases.results import CONSTRUCTORS, RETURN

__all__ = ["CASES", "Case"]

CASES = [*EDGES, *ON_THE_WAY, *WHERE, *VARIABLES, *RETURN, *CONSTRUCTORS, *NAMESPACED, *MESSAGES, *BEYOND]
