"""The branching workload: messages and queries in the shape of the paper's, and queries that can match."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice

import pytest
from lxml import etree

from sapwood import Matcher
from sapwood.lang.pattern import And, Condition, Has, Step
from sapwood.lang.query import compile_query
from sapwood.workload import ObservationWorkload, load_dtd
from sapwood.workload.studies import observation_workload
from tests.workload.support import SHIPPED

PREDICATE = re.compile(r""" (=|!=|<=?|>=?) ('[^']*'|"[^"]*"|-?[\d.]+)""")
TOKEN = re.compile(r"(\[|\]| and )")

Predicate = tuple[str, str, str]  # the path from the root, operator, literal


@cache
def workload() -> ObservationWorkload:
    return ObservationWorkload(documents=150)


@cache
def messages() -> list[bytes]:
    return list(workload().messages())


@cache
def queries() -> list[str]:
    return list(workload().queries(8_000))


def values(message: bytes) -> Iterator[tuple[str, str]]:
    """The tag path and value of all attributes and text nodes."""
    yield from _values(etree.fromstring(message), "")


def _values(element: etree._Element, above: str) -> Iterator[tuple[str, str]]:
    path = f"{above}/{element.tag}"
    for name, value in element.items():
        yield f"{path}/@{name!s}", str(value)
    for text in (element.text, *(child.tail for child in element)):
        if text:
            yield f"{path}/text()", text
    for child in element:
        yield from _values(child, path)


@cache
def predicates(query: str) -> list[Predicate]:
    """All comparisons, each with the whole path to what it compares."""
    compared = PREDICATE.findall(query)
    found: list[Predicate] = []
    context, path = "", ""
    outer: list[str] = []
    for token in TOKEN.split(PREDICATE.sub("#", query)):
        if token == "[":
            outer.append(context)
            context = path
        elif token == "]":
            path, context = context, outer.pop()
        elif token == " and ":
            path = context
        elif token:
            relative = token.rstrip("#").removeprefix(".")
            path += relative if relative.startswith("/") else f"/{relative}"
            if token.endswith("#"):
                found.append((path, *compared[len(found)]))
    return found


def linear_paths(queries: list[str]) -> set[str]:
    return {path for query in queries for path, _, _ in predicates(query)}


def compiled(condition: Condition, above: str = "") -> Iterator[str]:
    """The same of a compiled query: paths and operators."""
    match condition:
        case And():
            for item in condition.items:
                yield from compiled(item, above)
        case Has():
            for step in condition.path.steps:
                above += str(Step(step.axis, step.test))
                for inner in step.conditions:
                    yield from compiled(inner, above)
            assert condition.test is not None, "every branch ends in a comparison"
            yield f"{above} {condition.test.op}"
        case _:
            raise AssertionError(condition)


# -- messages ------------------------------------------------------------------------------------------


def test_the_dtd_is_recursive() -> None:
    dtd = load_dtd("observatory")
    assert dtd.root == "dataset"
    assert dtd.recursive == {"group", "section"}


def test_messages_are_valid_and_in_one_line() -> None:
    validator = etree.DTD(str(SHIPPED / "observatory.dtd"))
    for message in messages():
        assert b"\n" not in message
        assert validator.validate(etree.fromstring(message)), validator.error_log


def test_messages_are_as_large_as_those_of_the_paper() -> None:
    counts = [sum(1 for _ in values(message)) for message in messages()]
    assert sum(counts) / len(counts) == pytest.approx(147, rel=0.1)
    assert sum(map(len, messages())) / len(messages()) == pytest.approx(9_500, rel=0.15)
    assert min(counts) < 60 and max(counts) > 300


def test_there_are_few_distinct_tag_paths() -> None:
    paths = {path for message in messages() for path, _ in values(message)}
    assert 60 <= len(paths) <= 90
    assert "/dataset/table/group/group/field/range/from/text()" in paths
    assert not any("/group/group/group" in path or "/section/section/section" in path for path in paths)


def test_values_are_skewed() -> None:
    drawn: dict[str, Counter[str]] = {}
    for message in messages():
        for path, value in values(message):
            drawn.setdefault(path, Counter())[value] += 1
    for name, distinct in (("author/last", 200), ("keywords/keyword", 20), ("published/year", 60)):
        counted = drawn[f"/dataset/{name}/text()"]
        assert len(counted) >= distinct
        assert counted.most_common(1)[0][1] > 3 * counted.total() / len(counted)
    assert all(1890 <= int(year) <= 1995 for year in drawn["/dataset/reference/year/text()"])


def test_the_same_seed_gives_the_same_workload() -> None:
    def drawn(seed: int) -> tuple[list[bytes], list[str]]:
        made = ObservationWorkload(seed, documents=5)
        return list(made.messages()), list(made.queries(100))

    assert drawn(1) == drawn(1)
    assert drawn(1)[0] != drawn(2)[0] and drawn(1)[1] != drawn(2)[1]


def test_asking_for_more_queries_changes_none() -> None:
    assert list(workload().queries(100)) == queries()[:100]
    assert list(islice(workload().messages(), 5)) == messages()[:5]


def test_there_must_be_a_document() -> None:
    with pytest.raises(ValueError, match="documents must be at least 1"):
        ObservationWorkload(documents=0)
    assert list(ObservationWorkload(documents=1).queries(3))


# -- queries -------------------------------------------------------------------------------------------


def test_queries_compile_without_a_rest_for_an_xpath_processor() -> None:
    for query in queries()[:400]:
        found = compile_query(query)
        assert found.exact, query
        assert set(compiled(found.condition)) == {f"{path} {op}" for path, op, _ in predicates(query)}


def test_queries_have_two_to_ten_predicates_and_seven_on_average() -> None:
    sizes = Counter(len(predicates(query)) for query in queries())
    assert set(sizes) == set(range(2, 11))
    assert sum(size * count for size, count in sizes.items()) / sizes.total() == pytest.approx(7, abs=0.3)


def test_four_predicates_in_five_are_equalities() -> None:
    drawn = Counter(op for query in queries() for _, op, _ in predicates(query))
    assert set(drawn) == {"=", "!=", "<", "<=", ">", ">="}
    assert drawn["="] / drawn.total() == pytest.approx(0.8, abs=0.03)
    assert all(drawn[op] > 0.02 * drawn.total() for op in drawn)


def test_order_is_asked_of_numbers_only() -> None:
    for query in queries():
        for path, op, literal in predicates(query):
            assert op in ("=", "!=") or re.fullmatch(r"-?\d+(\.\d+)?", literal), (path, op, literal)


def test_all_kinds_of_nodes_are_compared() -> None:
    kinds = Counter(
        path.rpartition("/")[2] if path.endswith("text()") else "@" if "/@" in path else "element"
        for path in (path for query in queries()[:5_000] for path, _, _ in predicates(query))
    )
    assert min(kinds["@"], kinds["text()"], kinds["element"]) > 0.1 * kinds.total()


def test_values_are_those_of_documents() -> None:
    known = {value for message in messages() for _, value in values(message)}
    for query in queries()[:5_000]:
        assert all(literal.strip("'\"") in known for _, _, literal in predicates(query)), query


def test_queries_branch_at_several_levels() -> None:
    def depth(query: str) -> int:
        levels = [0]
        for token in TOKEN.findall(PREDICATE.sub("", query)):
            levels.append(levels[-1] + (token == "[") - (token == "]"))
        return max(levels)

    depths = Counter(map(depth, queries()))
    assert min(depths[1], depths[2], depths[3]) > 0.02 * depths.total()


def test_predicates_of_a_query_differ() -> None:
    distinct = sum(len(set(predicates(query))) == len(predicates(query)) for query in queries())
    assert distinct > 0.9 * len(queries())


def test_distinct_paths_go_on_growing() -> None:
    """As in the paper, from 6,565 to 42,271 for twenty times as many queries; here at the low end."""
    few, more = len(linear_paths(queries()[:2_000])), len(linear_paths(queries()))
    assert 400 < few < 1_000
    assert 800 < more < 2_000
    assert more > 1.5 * few


def test_queries_match_messages_and_mean_what_lxml_says() -> None:
    asked, sent = queries()[:200], messages()[:40]
    matcher = Matcher()
    matcher.add_many(enumerate(asked))
    found = {(number, id) for number, message in enumerate(sent) for id in matcher.match(message)}
    assert found
    documents = [etree.fromstring(message) for message in sent]
    for id, query in enumerate(asked[:60]):
        holds = etree.XPath(query)
        for number, document in enumerate(documents):
            assert bool(holds(document)) == ((number, id) in found), (query, number)


def test_every_query_would_match_but_for_those_gone_astray(monkeypatch: pytest.MonkeyPatch) -> None:
    def share() -> float:
        """Of queries that match one of few documents, from which all of them come; the first of each kind."""
        made = ObservationWorkload(documents=8)
        asked = list(made.queries(750))[::5]
        matcher = Matcher()
        matcher.add_many(enumerate(asked))
        return len({id for message in made.messages() for id in matcher.match(message)}) / len(asked)

    assert 0.3 < share() < 0.9
    monkeypatch.setattr(observation_workload, "_ASTRAY", 0.0)
    assert share() > 0.95  # a text that is != some other value may be alone with its own
