"""Numbers compare as IEEE 754 has them: Saxon decides, since libxml2 rounds long numbers in its own way."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from sapwood import Matcher
from tests.support.oracles import saxon

pytest.importorskip("saxonche")

OPERATORS = ["=", "!=", "<", "<=", ">", ">="]


def spellings(rng: random.Random) -> tuple[str, str]:
    """Two ways to write numbers that are equal, or next to each other."""
    number = Decimal(rng.randint(1, 10 ** rng.randint(1, 25))).scaleb(rng.randint(-25, 5))
    other = number if rng.random() < 0.6 else number.next_plus()
    return rng.choice([_plain, _exponent])(number), rng.choice([_plain, _padded])(other)


def _plain(number: Decimal) -> str:
    return format(number, "f")


def _padded(number: Decimal) -> str:
    text = format(number, "f")
    return f"00{text}000" if "." in text else f"00{text}.0"


def _exponent(number: Decimal) -> str:
    digits, exponent = number.as_tuple()[1:]
    return f"{''.join(map(str, digits))}e{exponent}"


def test_however_long_or_otherwise_spelt() -> None:
    rng = random.Random(7)
    pairs = [("1e23", "100000000000000000000000"), *(spellings(rng) for _ in range(1_500))]
    asked = [(value, rng.choice(OPERATORS), literal) for value, literal in pairs]
    message = "<r>" + "".join(f"<v>{value}</v>" for value, _, _ in asked) + "</r>"
    comparisons = ", ".join(
        f"number(/r/v[{i}]) {op} number('{literal}')" for i, (_, op, literal) in enumerate(asked, 1)
    )
    wanted = [answer == "true" for answer in saxon.answer(f"({comparisons})", message).split()]
    matcher = Matcher()
    matcher.add_many((i, f"/v[. {op} {literal}]") for i, (_, op, literal) in enumerate(asked))
    found = [i in matcher.match(f"<v>{value}</v>") for i, (value, _, _) in enumerate(asked)]
    assert found == wanted
    assert 400 < sum(wanted) < 1_100
