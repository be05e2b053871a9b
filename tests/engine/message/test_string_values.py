"""String-values of nested elements: tests of ranges of the text, and their cost."""

from __future__ import annotations

import math
import random
import tracemalloc

import pytest

from sapwood import Matcher, Tuning
from sapwood.engine.automaton import predicate_index
from sapwood.engine.message import document, message_reader, string_values
from sapwood.engine.message.string_values import Occurrences, StringValues
from sapwood.lang.literals.numbers import to_number
from sapwood.lang.pattern import Test as Comparison
from tests.support.growth import assert_linear, cpu_seconds
from tests.support.oracles import lxml_oracle
from tests.support.requirements import FULL

pytestmark = pytest.mark.slow

DEPTH = 499
SIZES = (10_000, 100_000, 1_000_000) if FULL else (10_000, 100_000)


# -- answers -------------------------------------------------------------------------------------------------


def test_the_next_occurrence_is_what_a_search_finds() -> None:
    rng = random.Random(1)
    for _ in range(200):
        text = "".join(rng.choices("ab", k=rng.randrange(60)))
        wanted = "".join(rng.choices("ab", k=rng.randrange(1, 5)))
        known = Occurrences(lambda i, j, t=text, w=wanted: t.find(w, i, j), len(wanted), len(text))  # type: ignore[misc]
        for _ in range(40):
            position = rng.randrange(len(text) + 1)
            found = text.find(wanted, position)
            assert known.next(position) == (found if found >= 0 else len(text)), (text, wanted, position)


def test_each_part_of_the_text_is_searched_once() -> None:
    rng = random.Random(2)
    text = "x" * 100_000 + "needle" + "x" * 100_000
    looked_at = 0

    def find(start: int, end: int) -> int:
        nonlocal looked_at
        found = text.find("needle", start, end)
        looked_at += (found if found >= 0 else end) - start
        return found

    known = Occurrences(find, 6, len(text))
    for _ in range(2_000):
        known.next(rng.randrange(len(text)))
    assert looked_at < len(text) + 2_000 * 6


DIGITS = [*"0195", "00000", "99999", "1234567890" * 30, "0" * 300, *".eE", "e5", "e-7", "E+", *"-x"]
DIGITS_WEIGHTS = [4, 4, 4, 4, 2, 2, 2, 2, 3, 1, 1, 1, 1, 1, 1, 1]


def test_long_numbers_are_read_from_ranges_as_from_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(string_values, "LONG", 0)
    rng = random.Random(3)
    numbers = 0
    for _ in range(3_000):
        space = " \n" * rng.choice([0, 0, 1, 200])
        text = (
            space + rng.choice(["", "-"]) + "".join(rng.choices(DIGITS, DIGITS_WEIGHTS, k=rng.randrange(9)))
        )
        text += " " * rng.choice([0, 0, 1, 200])
        found = StringValues([text])
        for _ in range(6):
            start, end = sorted((rng.choice([0, rng.randrange(len(text) + 1)]), len(text)))
            end = rng.choice([end, rng.randrange(start, end + 1)])
            expected, number = to_number(text[start:end]), found.number(start, end)
            assert math.isnan(number) if math.isnan(expected) else same(number, expected), text[start:end]
            numbers += not math.isnan(expected)
    assert numbers > 3_000


def same(one: float, other: float) -> bool:
    return one == other and math.copysign(1, one) == math.copysign(1, other)


@pytest.mark.parametrize(
    "number",
    [
        "9007199254740993" + "0" * 900,  # half way between two doubles
        "9007199254740993." + "0" * 900 + "1",  # and a little more
        "9007199254740992." + "9" * 900,
        "0." + "0" * 900 + "1e901",
        "1" + "0" * 900 + "e-900",
        "1e" + "0" * 900 + "5",
        "1e" + "9" * 900,
        "1e-" + "9" * 900,
        "-0." + "0" * 900,
        "9" * 900 + ".",
        "." + "3" * 900,
    ],
)
def test_a_number_may_be_longer_than_any_double(number: str) -> None:
    assert same(StringValues([number]).number(0, len(number)), to_number(number))
    assert math.isnan(StringValues([number + "x"]).number(0, len(number) + 1))


TESTS = [
    *(
        Comparison(op, text)
        for op in ("=", "!=", "contains", "starts-with")
        for text in ("", "a", "ab", "aba")
    ),
    *(Comparison(op, number) for op in ("=", "!=", "<", "<=", ">", ">=") for number in (0.0, 1.0, 10.0)),
]


def test_ranges_pass_what_their_copies_pass() -> None:
    rng = random.Random(4)
    for _ in range(300):
        text = "".join(rng.choices(["a", "b", "1", "0", " "], k=rng.randrange(30)))
        found = StringValues([text[:5], text[5:]])
        for _ in range(10):
            start = rng.randrange(len(text) + 1)
            end = rng.randrange(start, len(text) + 1)
            for test in TESTS:
                assert found.passes(test, start, end) == predicate_index.passes(text[start:end], test), (
                    text,
                    test,
                )


@pytest.fixture
def ranges_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No string-value is short, and none is copied to be probed."""
    for module in (string_values, document, predicate_index, message_reader):
        monkeypatch.setattr(module, "LONG", 0)
    monkeypatch.setattr(message_reader, "_MAX_COPIES", 0)


@pytest.mark.usefixtures("ranges_only")
@pytest.mark.parametrize("tuning", [Tuning(), Tuning(index_values=False), Tuning(join_bundles=False)])
def test_ranges_answer_as_lxml_does(tuning: Tuning) -> None:
    rng = random.Random(5)
    asked = 0
    for _ in range(25):
        queries = [lxml_oracle.random_query(rng) for _ in range(60)]
        matcher = Matcher(lxml_oracle.NAMESPACES, tuning=tuning)
        matcher.add_many(enumerate(queries))
        for _ in range(4):
            message = lxml_oracle.random_document(rng)
            tree = lxml_oracle.parse(message)
            expected = [i for i, q in enumerate(queries) if lxml_oracle.matches(tree, q)]
            assert list(matcher.match(message)) == expected, (message, queries)
            asked += len(queries)
    assert asked == 6_000


# -- growth --------------------------------------------------------------------------------------------------

LONG_TEXT = "x" * 1_000
OPERATORS = {
    "contains": "contains(., 'needle')",
    "contains, at the end": "contains(., 'last words')",
    "starts-with": "starts-with(., 'needle')",
    "=": f". = '{LONG_TEXT}'",
    "!=": f". != '{LONG_TEXT}'",
    "= number": ". = 5",
    "<": ". < 5",
    ">=": ". >= 5",
}
FORMS = {
    "natively": "//*[{}]",
    "by its pattern": "//a[{}][position() < 3]",
    "denied": "//a[not({})]",
    "of what is inside": "/a[.//a[{}]]",
}
FILLINGS = {
    "words": lambda n: "lorem<b/> ip " * (n // 13) + "last words",
    "digits": lambda n: "1234<b/>567890" * (n // 14),
    "spaces": lambda n: " " * (n // 2) + "<b/>" + " " * (n // 2),
    "markup": lambda n: "x<b/>" * (n // 5),
}


@pytest.mark.parametrize("filling", FILLINGS.keys())
@pytest.mark.parametrize("form", FORMS.keys())
@pytest.mark.parametrize("operator", OPERATORS.keys())
def test_nested_elements_cost_no_more_than_their_text(operator: str, form: str, filling: str) -> None:
    """Each level adds a character in front and behind, so that all values differ."""
    query = FORMS[form].replace("{}", OPERATORS[operator])

    def took(size: int) -> float:
        matcher = Matcher()
        matcher.add("q", query)
        message = "<a>1" * DEPTH + FILLINGS[filling](size) + "1</a>" * DEPTH
        matcher.match("<a/>")
        return cpu_seconds(lambda: matcher.match(message))

    assert_linear(took, SIZES)  # copied for each element, 100 kB were 50 MB, and took seconds


def test_nested_elements_hold_no_more_than_their_text() -> None:
    matcher = Matcher()
    matcher.add_many(enumerate(FORMS["natively"].replace("{}", operator) for operator in OPERATORS.values()))
    matcher.match("<a/>")
    message = "<a>1" * DEPTH + "lorem ip " * 50_000 + "1</a>" * DEPTH
    tracemalloc.start()
    matcher.match(message)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * len(message) + 5e6


def test_values_of_elements_around_the_same_text_are_one_string() -> None:
    matcher = Matcher()
    matcher.add("q", "//a")
    nodes = matcher.select("<a>" * 300 + "x<b/>" * 1_000 + "</a>" * 300)["q"]
    assert len(nodes) == 300
    assert len({id(node.value) for node in nodes}) == 1
