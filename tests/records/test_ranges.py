"""The value index: very many tests of one value cost no more than finding those that it passes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood import Matcher, Tuning
from sapwood.engine.automaton import predicate_index
from sapwood.engine.message import document
from sapwood.lang import pattern
from sapwood.lang.literals import numbers
from tests.support.oracles import lxml_oracle

pytestmark = pytest.mark.slow

MANY, SOME = 100_000, 8_000


class Calls:
    """Counts single tests and conversions to numbers, wherever they are made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tests = self.conversions = 0
        passes, to_number = predicate_index.passes, numbers.to_number

        def counted_passes(value: str, test: pattern.Test) -> bool:
            self.tests += 1
            return passes(value, test)

        def counted_to_number(value: str | float) -> float:
            self.conversions += 1
            return to_number(value)

        for module in (predicate_index, document):
            monkeypatch.setattr(module, "passes", counted_passes)
        monkeypatch.setattr(predicate_index, "to_number", counted_to_number)


PRICES = [
    ("0", 0),
    ("1", 1),
    ("0.5", 1),
    ("7777", 7_777),
    ("7777.5", 7_778),
    ("1e9", MANY),
    ("-1", 0),
    ("x", 0),
]


@pytest.mark.parametrize(("price", "matching"), PRICES)
def test_100000_ranges_are_decided_without_100000_tests(
    price: str, matching: int, index: predicate_index.PredicateIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    assert hits(index, price) == (list(range(matching)), [])
    assert calls.tests == 0
    assert calls.conversions <= 1


@pytest.fixture(scope="module")
def index() -> predicate_index.PredicateIndex:
    """`> k` for a hundred thousand k."""
    index = predicate_index.PredicateIndex()
    for k in range(MANY):
        index.add(pattern.Test(">", float(k)), predicate_index.PostingKind.SLOT, k)
    return index


@pytest.fixture(scope="module")
def ranges() -> Matcher:
    """`price > k` for ten thousand k."""
    matcher = Matcher()
    matcher.add_many((k, f"//item[@price > {k}]") for k in range(SOME))
    return matcher


@pytest.mark.parametrize(("price", "matching"), PRICES)
def test_queries_with_ranges_are_decided_without_a_test(
    price: str, matching: int, ranges: Matcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    matching = min(matching, SOME)
    calls = Calls(monkeypatch)
    matches = ranges.match(f"<order><item price='{price}'/></order>")
    assert len(matches) == matching
    assert (0 in matches) == (matching > 0)
    assert matches.numbers.tolist() == list(range(matching))
    assert calls.tests == 0
    assert calls.conversions <= 2


def test_several_values_are_joined_without_testing_each_query(
    ranges: Matcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch)
    items = "".join(f"<item price='{price}'/>" for price in (3, 5_000, 7, "none", 4_999))
    assert len(ranges.match(f"<order>{items}</order>")) == 5_000
    assert calls.tests == 0
    assert calls.conversions <= 10


def test_the_null_twin_does_try_every_test(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher(tuning=Tuning(index_values=False))
    matcher.add_many((k, f"//item[@price > {k}]") for k in range(500))
    calls = Calls(monkeypatch)
    assert len(matcher.match("<item price='250'/>")) == 250
    assert calls.tests >= 500


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "=", "!="])
@pytest.mark.parametrize("target", ["@price", ".", "text()", "price"])
def test_every_operator_on_every_target_is_indexed(
    op: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = Matcher()
    matcher.add_many((k, f"//item[{target} {op} {k}]") for k in range(300))
    message = {
        "@price": "<item price='150'/>",
        "price": "<item><price>150</price></item>",
    }.get(target, "<item>150</item>")
    calls = Calls(monkeypatch)
    found = set(matcher.match(message))
    assert calls.tests == 0
    assert found == {k for k in range(300) if numbers_compare(150, op, k)}


def numbers_compare(left: float, op: str, right: float) -> bool:
    return {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "=": left == right,
        "!=": left != right,
    }[op]


@pytest.mark.parametrize(
    ("template", "matching"),
    [
        ("//item[@name = 'name {}']", {42}),
        ("//item[@name != 'name {}']", set(range(300)) - {42}),
        ("//item[starts-with(@name, 'name {}')]", {4, 42}),
        ("//item[contains(@name, 'ame {}')]", {4, 42}),
        ("//item[contains(@name, '{}')]", {2, 4, 42}),
    ],
)
def test_tests_of_strings_are_indexed(
    template: str, matching: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = Matcher()
    matcher.add_many((k, template.format(k)) for k in range(300))
    calls = Calls(monkeypatch)
    assert set(matcher.match("<item name='name 42'/>")) == matching
    assert calls.tests == 0


def test_ranges_that_must_meet_others_are_indexed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher()
    matcher.add_many((k, f"//item[@price > {k} and @price < {k + 10} and @sold]") for k in range(1_200))
    calls = Calls(monkeypatch)
    message = "<order><item price='1000' sold=''/><item price='500'/></order>"
    assert list(matcher.match(message)) == list(range(991, 1_000))
    assert calls.tests <= 20


# -- the index against its null twin ---------------------------------------------------------------------

_TEXTS = st.sampled_from(
    ["", "1", "1.0", " 1", "-1", "10", "2", "abc", "abcd", "bc", "xabcx", "ab", "a", "NaN", "é€𝄞"]
)
_VALUES = st.one_of(_TEXTS, st.text("ab1.- ", max_size=6))
_CONSTANTS = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 10.0, 1e300, float("inf"), float("-inf")])
_TESTS = st.one_of(
    st.none(),
    st.builds(pattern.Test, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), _CONSTANTS),
    st.builds(pattern.Test, st.sampled_from(["=", "!=", "contains", "starts-with"]), _VALUES),
)
_KIND = predicate_index.PostingKind
_MARKS = st.lists(st.tuples(_TESTS, st.sampled_from([_KIND.SLOT, _KIND.ANCHORING])), max_size=40)


@settings(max_examples=300, deadline=None)
@given(marks=_MARKS, probes=st.lists(_VALUES, min_size=1, max_size=8), rng=st.randoms(use_true_random=True))
def test_the_index_finds_what_trying_every_test_finds(
    marks: list[tuple[pattern.Test | None, predicate_index.PostingKind]],
    probes: list[str],
    rng: random.Random,
) -> None:
    """Through additions and removals in any order; in the end nothing is left."""
    index, twin = predicate_index.PredicateIndex(), predicate_index.SequentialPredicates()
    numbered = list(enumerate(marks))
    for number, (test, kind) in numbered:
        index.add(test, kind, number)
        twin.add(test, kind, number)
        if rng.random() < 0.3:
            compare(index, twin, probes, marks)
    compare(index, twin, probes, marks)
    rng.shuffle(numbered)
    while numbered:
        number, (test, kind) = numbered.pop()
        index.remove(test, kind, number)
        twin.remove(test, kind, number)
        assert len(index) == len(twin) == len(numbered)
        if rng.random() < 0.3:
            compare(index, twin, probes, marks)
    for value in probes:
        assert hits(index, value) == hits(twin, value) == ([], [])


def compare(
    index: predicate_index.PredicateIndex,
    twin: predicate_index.SequentialPredicates,
    probes: list[str],
    marks: list[tuple[pattern.Test | None, predicate_index.PostingKind]],
) -> None:
    for value in probes:
        found = hits(index, value)
        assert found == hits(twin, value), value
        for number in found[0] + found[1]:
            test = marks[number][0]
            assert test is None or predicate_index.passes(value, test)


def hits(index: predicate_index.PredicateIndex, value: str) -> tuple[list[int], list[int]]:
    gathered = predicate_index.HitCollector()
    index.collect(value, gathered)
    found = gathered.hits()
    return (
        (sorted(found.slots.tolist()), sorted(found.anchorings.tolist())) if found is not None else ([], [])
    )


# -- values against lxml ---------------------------------------------------------------------------------


def written_numbers() -> Iterator[str]:
    """What people and machines write where a number is expected."""
    yield from ["0", "-0", "1", "-1", "1.", ".5", "-.5", "00012", "1.50", "0.1", "0.10", "3.14159265358979"]
    yield from [
        "12345678901234567890",
        "0.1000000000000000055511151231257827",
        "4.35",
        "1e1",
        "1E1",
        "1e-1",
        "1e400",
    ]
    yield from [
        "",
        " ",
        ".",
        "-",
        "+1",
        "- 1",
        "--1",
        "1..2",
        "1,5",
        "1 2",
        "0x10",
        "1d",
        "NaN",
        "Infinity",
        "-Infinity",
    ]
    yield from [" 1 ", "\n1\t", "1\u00a0", "\u0661", "½", "1e", "1e+", "1e1.5", "e1", "1_000", "١"]


@pytest.mark.parametrize("value", list(written_numbers()), ids=ascii)
def test_a_string_is_the_number_that_libxml2_takes_it_for(value: str) -> None:
    constants = ["0", "1", "-1", "0.1", "0.5", "1.5", "4.35", "10", "12", "'1'", "'x'", "'0.10'"]
    queries = [f"/a[@x {op} {c}]" for op in ("=", "!=", "<", "<=", ">", ">=") for c in constants]
    matcher = Matcher()
    matcher.add_many((query, query) for query in queries)
    message = f'<a x="{value}"/>'
    tree = lxml_oracle.parse(message)
    assert list(matcher.match(message)) == [query for query in queries if lxml_oracle.matches(tree, query)]


def test_random_decimals_compare_as_lxml_compares_them() -> None:
    rng = random.Random(11)

    def decimal() -> str:
        digits = f"{rng.randrange(10 ** rng.randint(1, 6))}"
        return f"{rng.choice(['', '-'])}{digits}.{rng.randrange(10 ** rng.randint(1, 4))}"

    constants = [decimal() for _ in range(40)]
    queries = [f"/a[@x {rng.choice(['=', '<', '>=', '!='])} {constant}]" for constant in constants]
    matcher = Matcher()
    matcher.add_many(enumerate(queries))
    for value in [*constants, *(decimal() for _ in range(60))]:
        message = f"<a x='{value}'/>"
        tree = lxml_oracle.parse(message)
        assert list(matcher.match(message)) == [
            i for i, q in enumerate(queries) if lxml_oracle.matches(tree, q)
        ], value
