"""Columns of whole numbers are read as they were written, and take few bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.serve.log.column_codec import decode_columns, encode_columns

numbers = st.integers(-(2**62), 2**62) | st.integers(-3, 300) | st.integers(2**31 - 5, 2**31 + 5)


@given(st.integers(0, 30).flatmap(lambda n: st.lists(st.lists(numbers, min_size=n, max_size=n), min_size=1)))
def test_columns_are_read_as_written(columns: list[list[int]]) -> None:
    encoded = encode_columns([np.array(column, np.int64) for column in columns])
    found, end = decode_columns(b"before" + encoded + b"behind", len(columns), len(b"before"))
    assert [column.tolist() for column in found] == columns
    assert end == len(b"before" + encoded)


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([7] * 1_000, 0),
        (range(10**15, 10**15 + 256), 256),
        (range(-1, 256), 2 * 257),
        ([0, 2**16], 2 * 4),
        ([0, 2**32], 2 * 8),
    ],
)
def test_a_column_takes_the_narrowest_type(values: list[int], size: int) -> None:
    empty = len(encode_columns([np.zeros(1, np.int64)]))
    assert len(encode_columns([np.array(values, np.int64)])) == empty + size
