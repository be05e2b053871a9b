"""Numbers for items that are used several times; those of items that are removed are assigned again."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def store_item(item: T, items: list[T | None], uses: list[int], free: list[int]) -> int:
    """Store an item with one use under a free number, or else under the next one, and return the number."""
    if free:
        number = free.pop()
        items[number], uses[number] = item, 1
    else:
        number = len(items)
        items.append(item)
        uses.append(1)
    return number
