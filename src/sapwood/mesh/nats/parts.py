"""Payloads beyond the largest message of NATS servers travel in several messages, the parts of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Generic, TypeVar
from uuid import uuid4

from sapwood.errors import ArgumentError

PART = "Sapwood-Part"
"""The header of a part: the group's name, the number of the part from 0, and how many there are."""

MOST_PARTS = 2_048
"""Parts of a group; a consumer may have more messages unacknowledged, or it would never get a whole one."""

LARGEST_PAYLOAD = 256 * 1024 * 1024

_PART_LIMIT = 1024 * 1024
_OVERHEAD = 4_096
_PROCESS = uuid4().hex[:16]
_GROUPS = count(1)

Token = TypeVar("Token")


def part_size(max_payload: int) -> int:
    """Return the bytes of a part.

    The limit of the connected server does not count alone: servers on the way drop the connection of a leaf
    node that sends more than their own, which is 1 MB unless an operator changed it.
    """
    return max(min(max_payload, _PART_LIMIT) - _OVERHEAD, 512)


def check_size(payload: bytes) -> None:
    """Raise `ArgumentError` for a payload that no link carries."""
    if len(payload) > LARGEST_PAYLOAD:
        raise ArgumentError(
            f"a payload of {len(payload):,} bytes is too large for a link: {LARGEST_PAYLOAD:,} is the limit"
        )


def split(payload: bytes, size: int) -> Iterator[tuple[bytes, str | None]]:
    """Yield what to publish: the payload without a header, or parts of it with the value of theirs."""
    if len(payload) <= size:
        yield payload, None
        return
    group = f"{_PROCESS}-{next(_GROUPS)}"
    total = -(-len(payload) // size)
    for number in range(total):
        yield payload[number * size : (number + 1) * size], f"{group}.{number}.{total}"


class Assembler(Generic[Token]):
    """Puts the parts of one sender's groups together; an incomplete group is dropped when another begins.

    Each message comes with a token, such as what acknowledges it, which is given back with the whole payload
    or with what was dropped.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._group = ""
        self._total = 0
        self._parts: list[bytes] = []
        self._tokens: list[Token] = []

    @property
    def tokens(self) -> Sequence[Token]:
        """Those of the parts that wait for more."""
        return self._tokens

    def add(
        self, data: bytes, part: str | None, token: Token
    ) -> tuple[bytes | None, list[Token], list[Token]]:
        """Return the payload if it is whole, its tokens, and those of dropped parts."""
        if part is None:
            return data, [token], self.clear()
        group, number, total = _parse(part)
        dropped: list[Token] = []
        if number == 0:
            dropped = self.clear()
            self._group, self._total = group, total
        elif group != self._group or number != len(self._parts):  # its beginning is missing
            self.dropped += 1
            return None, [], [*self.clear(), token]
        self._parts.append(data)
        self._tokens.append(token)
        if len(self._parts) < self._total:
            return None, [], dropped
        payload, tokens = b"".join(self._parts), self._tokens
        self._reset()
        return payload, tokens, dropped

    def clear(self) -> list[Token]:
        """Drop an incomplete group, and return its tokens."""
        tokens = self._tokens
        self.dropped += len(tokens)
        self._reset()
        return tokens

    def _reset(self) -> None:
        self._group, self._total, self._parts, self._tokens = "", 0, [], []


def _parse(part: str) -> tuple[str, int, int]:
    """Read the header of a part; one that is none of ours begins no group and continues none."""
    group, _, numbers = part.partition(".")
    number, _, total = numbers.partition(".")
    if not (number.isascii() and number.isdigit() and total.isascii() and total.isdigit()):
        return "", -1, 0
    if int(number) >= int(total) or int(total) > MOST_PARTS:
        return "", -1, 0
    return group, int(number), int(total)
