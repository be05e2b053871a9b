"""SQL dialects of DuckDB and Spark, and conditions that all statements share."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sapwood.relational.rules.comparisons import (
    ALWAYS,
    AT_LEAST,
    AT_MOST,
    CONTAINS,
    EQUAL_NUMBER,
    EQUAL_TEXT,
    EXISTS,
    LESS,
    MORE,
    OTHER_NUMBER,
    OTHER_TEXT,
    STARTS,
)


class SqlStep(NamedTuple):
    """A statement, and the name under which later ones read its result."""

    name: str
    sql: str


class Dialect(Protocol):
    """Expressions and tables that differ between SQL engines."""

    @property
    def rules_in_rows(self) -> bool:
        """Whether rows of `unrolled` have query and shape of their rule, so that `rule` is not read."""

    def array_item(self, array: str, index: str) -> str:
        """Return the expression for an array's item, counted from 1; null beyond its end."""


class DuckDBDialect:
    """DuckDB's SQL, on the tables of `table_schema`."""

    rules_in_rows = False

    def array_item(self, array: str, index: str) -> str:
        return f"{array}[{index}]"


class SparkDialect:
    """Spark SQL, on the tables of `table_snapshot`."""

    rules_in_rows = True

    def array_item(self, array: str, index: str) -> str:
        return f"get({array}, {index} - 1)"


def bound_condition(extent: str, bound: str, texts: bool, slot: str = "") -> str:
    """Return the condition that some value of an extent meets a bound.

    Some value is below 20 if the lowest is; some value differs from 20 if the lowest or the highest does, or
    if one is no number. `slot` is a suffix of the bound's columns; bounds on texts need `texts`.
    """
    number, text = f"{bound}.number{slot}", f"{bound}.text{slot}"
    low, high = f"{extent}.low", f"{extent}.high"
    differs = f"WHEN {OTHER_TEXT} THEN {extent}.low_text <> {text} OR {extent}.high_text <> {text}"
    return f"""CASE {bound}.op{slot}
        WHEN {MORE} THEN {high} > {number} WHEN {LESS} THEN {low} < {number}
        WHEN {AT_LEAST} THEN {high} >= {number} WHEN {AT_MOST} THEN {low} <= {number}
        WHEN {OTHER_NUMBER} THEN {extent}.odd OR {low} <> {number} OR {high} <> {number}
        {differs if texts else ""}
        WHEN {ALWAYS} THEN true ELSE false END"""


def predicate_condition(value: str, predicate: str) -> str:
    """Return the condition that a value passes a predicate of any kind."""
    number, text = f"{predicate}.number", f"{predicate}.text"
    return f"""CASE {predicate}.op
        WHEN {EXISTS} THEN true
        WHEN {EQUAL_TEXT} THEN {value}.text = {text} WHEN {EQUAL_NUMBER} THEN {value}.number = {number}
        WHEN {CONTAINS} THEN instr({value}.text, {text}) > 0
        WHEN {STARTS} THEN instr({value}.text, {text}) = 1
        WHEN {LESS} THEN {value}.number < {number} WHEN {AT_MOST} THEN {value}.number <= {number}
        WHEN {MORE} THEN {value}.number > {number} WHEN {AT_LEAST} THEN {value}.number >= {number}
        WHEN {OTHER_NUMBER} THEN {value}.number IS NULL OR {value}.number <> {number}
        WHEN {OTHER_TEXT} THEN {value}.text <> {text} ELSE false END"""
