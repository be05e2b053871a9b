"""Lengths of time, of which there is one parser for options and settings."""

from __future__ import annotations

import pytest

from sapwood.lang.literals.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), (" 0 s ", 0), ("0.0 ms", 0), ("000min", 0), ("10 min", 600), ("1.5h", 5_400), ("200 ms", 0.2)],
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "0 m", "0 elephants", "0 s s", "INF", "-1 s", "5 s ago", "0 0"])
def test_texts_that_are_no_duration_are_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value)
