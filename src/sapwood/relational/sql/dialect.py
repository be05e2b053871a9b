"""The little in which the engines' SQL differs, and what all statements are made of."""

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
    """A statement whose result later ones call by a name."""

    name: str
    sql: str


class Dialect(Protocol):
    """How an engine says what SQL has no common words for."""

    def item(self, array: str, place: str) -> str:
        """The array's item at a place counted from 1; null beyond its end."""


class DuckDialect:
    def item(self, array: str, place: str) -> str:
        return f"{array}[{place}]"


class SparkDialect:
    def item(self, array: str, place: str) -> str:
        return f"get({array}, {place} - 1)"


def within(extent: str, bound: str, texts: bool, slot: str = "") -> str:
    """Whether some value of an extent meets a bound, whose columns may have a number behind their names; a
    bound on a text, only if there are `texts`.

    Some value is below 20 if the lowest is; some value differs from 20 if the lowest or the highest does, or
    if one is no number.
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


def passes(value: str, predicate: str) -> str:
    """Whether one value passes a predicate of any kind."""
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
