"""What messages have to say, for those who keep it elsewhere: by names that all processes understand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sapwood.join.past import Record


class Testimony(NamedTuple):
    """A value that a variable has in a message."""

    variable: bytes
    """of eight bytes, made of the variable's definition"""
    value: str
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """A message and what it had to say."""

    record: Record
    testimony: list[Testimony]
