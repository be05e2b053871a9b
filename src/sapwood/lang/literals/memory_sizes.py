"""Memory limits as people write them, and the least that DuckDB works with."""

from __future__ import annotations

import re

from sapwood.errors import TablesError

_MEMORY_SIZE = re.compile(r"\s*(?=[\d.]*[1-9])(\d+(?:\.\d+)?)\s*([KMGT])(i?)B\s*", re.IGNORECASE)

DEFAULT_MEMORY = "512MB"
"""DuckDB's default memory limit; larger operations spill to disk"""
MIN_MEMORY = "16MB"
"""with less, DuckDB opens the file but cannot load a thousand subscriptions, even with one thread"""


def parse_memory(text: str) -> float:
    """Parse a memory limit such as `512MB` or `1.5 GiB` into bytes; raises TablesError."""
    found = _MEMORY_SIZE.fullmatch(text)
    if found is None:
        raise TablesError(f"the memory limit {text!r} is not understood; write it like 512MB or 2GB")
    base = 1024.0 if found[3] else 1000.0
    size: float = float(found[1]) * base ** ("KMGT".index(found[2].upper()) + 1)
    return size


def check_memory(size: float, text: str) -> None:
    """Raise TablesError for a memory limit with which DuckDB cannot work; `text` is the limit as shown."""
    if size < parse_memory(MIN_MEMORY):
        raise TablesError(f"the memory limit {text} is too small for DuckDB; give at least {MIN_MEMORY}")
