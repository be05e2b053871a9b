"""Limits on messages and queries, and switches of the optimisations."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one message. A message that exceeds one is refused with a MessageError that names it; what
    exceeds `result` or a limit of queries fails for that query alone."""

    bytes: int = 16 * 1024 * 1024
    depth: int = 500
    attributes: int = 1_000
    """on one element"""
    name_length: int = 1_000
    """in characters, with the namespace"""
    entity_expansion: int = 100_000
    """characters that all references to entities of the internal subset, and default attributes, expand to"""
    result: int = 16 * 1024 * 1024
    """bytes that one query may make of a message, or characters that it may select"""
    query_seconds: float = 1.0
    """CPU seconds for a query that only lxml can evaluate; 0: no limit"""
    query_memory: int = 2 * 1024 * 1024 * 1024
    """bytes of memory for such a query, including the tree of the message; 0: no limit"""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise ArgumentError(f"Limits.{name} must not be negative")
        if self.depth > 2_000:
            raise ArgumentError("Limits.depth must not exceed 2000, the deepest tree that lxml reads")


@dataclass(frozen=True, slots=True)
class Tuning:
    """Switches of the optimisations, so that each can be turned off and the results compared."""

    cache: int = 8_000_000
    """cells, of some twenty bytes, for cached guide nodes and values; 0: no caching"""
    kernel: bool = True
    """match in C, if the compiled kernel is there and the switches below are on; False: in Python"""
    tokenizer: bool = True
    """let the kernel's tokeniser read messages in UTF-8; False: expat reads all"""
    query_classes: bool = True
    """count queries that are found at the same tag paths as one, in Python if that pays; False: one by one"""
    index_values: bool = True
    """find the tests that a value passes by index; False: try each test"""
    join_bundles: bool = True
    """match twigs by joining arrays; False: evaluate each candidate's pattern on the message"""
    prefilter: bool = True
    """find candidates by their leaves; False: evaluate every query on every message"""
    share_plans: bool = True
    """one plan of shared operators for all transformations; False: one plan each, run on every message"""
    share_joins: bool = True
    """evaluate joins template by template, all queries of one at once; False: one query at a time"""
    share_values: bool = True
    """look up the values that messages have in common once for all templates; False: once for each"""
