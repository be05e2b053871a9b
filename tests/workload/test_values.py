from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from sapwood.workload.dtd.model import Attribute, Default
from sapwood.workload.messages.value_distributions import Distribution, ValuePool, Values, zipf


def frequencies(distribution: Distribution, draws: int = 20_000) -> list[float]:
    random = Random(5).random
    counts = Counter(distribution.rank(random()) for _ in range(draws))
    return [counts[rank] / draws for rank in range(distribution.count)]


@pytest.mark.parametrize("weights", [None, [1.0] * 4, zipf(4, 1.0), [5.0, 0.0, 1.0, 2.0]])
def test_ranks_follow_the_weights(weights: list[float] | None) -> None:
    expected = weights or [1.0] * 4
    for seen, weight in zip(frequencies(Distribution(4, weights)), expected, strict=True):
        assert seen == pytest.approx(weight / sum(expected), abs=0.015)


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 3.0])
def test_the_ends_of_the_interval_are_ranks(skew: float) -> None:
    for count in (1, 3, 7, 1000):
        distribution = Distribution(count, zipf(count, skew))
        assert distribution.rank(0.0) == 0
        assert distribution.rank(1 - 2**-53) < count


def test_numbers_words_and_ids_are_distinct() -> None:
    numbers, words = Values(200, 0.0, numeric=True), Values(10_000, 0.0, numeric=False)
    assert list(numbers.text.values) == [str(i) for i in range(1, 201)]
    assert len(set(words.text.values)) == 10_000
    assert all(word.isalpha() for word in words.text.values)
    assert numbers.ids.values[0] == "i1", "an id must be an XML name"


def test_attributes_keep_to_their_declaration() -> None:
    values = Values(3, 0.0, numeric=True)

    def pool(kind: str, default: Default = Default.IMPLIED, value: str = "", *enumeration: str) -> list[str]:
        found = values.attribute(Attribute("a", kind, default, value, enumeration))
        return list(found.values) if found else []

    assert pool("CDATA") == pool("NMTOKEN") == ["1", "2", "3"]
    assert pool("ID") == pool("IDREF") == ["i1", "i2", "i3"]
    assert pool("ENUMERATION", Default.VALUE, "x", "x", "y") == ["x", "y"]
    assert pool("CDATA", Default.FIXED, "1.0") == ["1.0"]
    assert pool("ENTITY") == []
    assert values.attribute(Attribute("xmlns:p", "CDATA", Default.FIXED, "urn:p")) is None


def test_literals_and_escapes() -> None:
    assert ValuePool(["7"], 0.0).literal(0.5) == "7"
    assert ValuePool(["a"], 0.0).literal(0.5) == "'a'"
    assert ValuePool(["it's"], 0.0).literal(0.5) == '"it\'s"'
    assert not ValuePool(["'\""], 0.0).quotable
    assert ValuePool(['<a & "b">\n'], 0.0).escaped == ["&lt;a &amp; &quot;b&quot;&gt;&#10;"]
