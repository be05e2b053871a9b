"""Payloads in parts: split, put together, and what becomes of incomplete groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.errors import ArgumentError
from sapwood.mesh.nats.parts import LARGEST_PAYLOAD, Assembler, check_size, part_size, split


@given(st.lists(st.binary(max_size=40), max_size=10), st.integers(1, 10))
def test_what_is_split_is_put_together(payloads: list[bytes], size: int) -> None:
    assembler: Assembler[int] = Assembler()
    whole, tokens, number = [], [], 0
    for payload in payloads:
        for data, part in split(payload, size):
            assert len(data) <= size
            number += 1
            found, its_tokens, dropped = assembler.add(data, part, number)
            assert not dropped
            if found is not None:
                whole.append(found)
                tokens.extend(its_tokens)
    assert whole == payloads
    assert tokens == list(range(1, number + 1))
    assert assembler.dropped == 0


def test_an_incomplete_group_is_dropped_when_another_payload_begins() -> None:
    assembler: Assembler[int] = Assembler()
    first, second = list(split(b"abcdef", 2)), list(split(b"uvwxyz", 2))
    assert assembler.add(*first[0], 1) == (None, [], [])
    assert assembler.add(*first[1], 2) == (None, [], [])
    assert assembler.add(*second[0], 3) == (None, [], [1, 2])
    assert list(assembler.tokens) == [3]
    assert assembler.add(b"whole", None, 4) == (b"whole", [4], [3])
    assert assembler.dropped == 3


def test_parts_without_their_beginning_are_dropped() -> None:
    assembler: Assembler[int] = Assembler()
    first, second = list(split(b"abcdef", 2)), list(split(b"uvwxyz", 2))
    assert assembler.add(*first[1], 1) == (None, [], [1])
    assert assembler.add(*first[0], 2) == (None, [], [])
    assert assembler.add(*first[2], 3) == (None, [], [2, 3])
    assert assembler.add(*first[0], 4) == (None, [], [])
    assert assembler.add(*second[1], 5) == (None, [], [4, 5])


@pytest.mark.parametrize("part", ["", "x", "g.0", "g.a.b", "g.1.1", "g.0.0", "g.0.99999", "g.-1.2", "g.²."])
def test_headers_that_are_none_of_ours_are_dropped(part: str) -> None:
    assembler: Assembler[int] = Assembler()
    assert assembler.add(b"data", part, 1) == (None, [], [1])
    assert not assembler.tokens


def test_parts_fit_servers_on_the_way() -> None:
    assert part_size(64 * 1024 * 1024) == part_size(1024 * 1024) == 1024 * 1024 - 4096
    assert part_size(65_536) == 61_440
    check_size(bytes(10))
    with pytest.raises(ArgumentError, match="too large for a link"):
        check_size(bytes(LARGEST_PAYLOAD + 1))
