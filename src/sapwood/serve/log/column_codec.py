"""Columns of whole numbers in few bytes.

A message may have thousands of entries, so their size is most of what the log writes. Each column is stored
as its least value, and what its values are above that in the narrowest type that holds them; equal values
take no space at all. There is no compression: a column is read by one copy.

    column 1            column 2
    width │ least │ …   width │ least │ …        width 0: all values are the least one
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<Bq")
_TYPES: dict[int, type[np.unsignedinteger]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def encode_columns(columns: Sequence[Ints]) -> bytes:
    """Return columns of equal length as bytes."""
    parts = [_COUNT.pack(len(columns[0]))]
    for column in columns:
        if not len(column):
            parts.append(_HEAD.pack(0, 0))
            continue
        least, most = int(column.min()), int(column.max())
        width = _find_width(most - least)
        parts.append(_HEAD.pack(width, least))
        if width:
            parts.append((column.astype(np.int64) - least).astype(_TYPES[width]).tobytes())
    return b"".join(parts)


def _find_width(range: int) -> int:
    return 0 if not range else next(width for width in _TYPES if range < 1 << 8 * width)


def decode_columns(data: bytes, count: int, position: int = 0) -> tuple[list[Ints], int]:
    """Return the first columns of those at a position, and the position behind them."""
    (length,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    columns = []
    for _ in range(count):
        width, least = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        if width:
            values = np.frombuffer(data, _TYPES[width], length, position).astype(np.int64) + least
            position += width * length
        else:
            values = np.full(length, least, np.int64)
        columns.append(values)
    return columns, position
