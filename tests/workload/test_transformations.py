from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from sapwood.workload import Dtd, MessageGenerator, QueriesExhausted, TransformationGenerator, load_dtd
from tests.workload.support import NAMES, REAL_FILES, real, written

QUERY = re.compile(r"for \$b in (\S+)(?: where (.+))? return <r>(?:\{(.+)\})?</r>")
PREDICATE = re.compile(r"\$b((?:/[^=@]*)?)(/@[^=]+)?=('[^']*'|\d+)")


@dataclass
class Shape:
    """The parts of a generated query; paths are relative to what is bound."""

    binding: str
    predicates: list[tuple[str, str, str]]  # path, attribute with its slash, literal
    returned: list[str]

    @property
    def bound(self) -> str:
        return self.binding.rpartition("/")[2]


def shape(query: str) -> Shape:
    found = QUERY.fullmatch(query)
    assert found, query
    binding, where, holes = found.groups()
    predicates = []
    for predicate in where.split(" and ") if where else []:
        parts = PREDICATE.fullmatch(predicate)
        assert parts, query
        predicates.append((parts[1], parts[2] or "", parts[3]))
    returned = holes.split("}{")
    assert all(path.startswith("$b/") for path in returned), query
    return Shape(binding, predicates, [path[2:] for path in returned])


def steps(path: str) -> list[tuple[str, str]]:
    return re.findall(r"(//?)([^/]+)", path)


def drawn(count: int = 2000, dtd: str = "book", **parameters: Any) -> list[str]:
    return TransformationGenerator(load_dtd(dtd), **{"distinct": False, **parameters}).take(count)


def shapes(count: int = 2000, dtd: str = "book", **parameters: Any) -> list[Shape]:
    return [shape(query) for query in drawn(count, dtd, **parameters)]


def everything(dtd: Dtd, levels: int) -> Any:
    """A document of all walks down to a level."""

    def grown(element: str, left: int) -> str:
        inside = "".join(grown(child, left - 1) for child in dtd.children[element]) if left > 1 else ""
        return f"<{element}>{inside}</{element}>"

    return etree.fromstring(grown(dtd.root, levels))


@pytest.mark.parametrize("binding", [1, 2, 4])
@pytest.mark.parametrize("relative", [1, 2, 3])
def test_depths(binding: int, relative: int) -> None:
    found = shapes(binding_depth=binding, relative_depth=relative, descendant=0.0)
    bound = {len(steps(s.binding)) for s in found}
    assert bound == set(range(min(2, binding), binding + 1)), "the root is bound only if nothing else can be"
    assert {len(steps(path)) for s in found for path in s.returned} == set(range(1, relative + 1))
    compared = {len(steps(path.removesuffix("/text()"))) for s in found for path, _, _ in s.predicates}
    assert compared == set(range(relative + 1)), "an attribute of what is bound takes no step"


@pytest.mark.parametrize("predicates", [0, 1, 3])
@pytest.mark.parametrize("returned", [1, 2, 4])
def test_paths_are_counted(predicates: int, returned: int) -> None:
    for s in shapes(300, predicate_paths=predicates, return_paths=returned, descendant=0.4):
        assert len(s.predicates) == predicates
        assert len(s.returned) == len(set(s.returned)) == returned


def test_nothing_is_compared_twice_in_a_query() -> None:
    for s in shapes(predicate_paths=3, values=2):
        assert len({(path, attribute) for path, attribute, _ in s.predicates}) == 3


def test_paths_are_in_order() -> None:
    for query in drawn(predicate_paths=3, return_paths=3):
        predicates = query.partition(" where ")[2].partition(" return ")[0].split(" and ")
        assert predicates == sorted(predicates)
        assert shape(query).returned == sorted(shape(query).returned)


@pytest.mark.parametrize("name", NAMES)
def test_plain_paths_follow_the_dtd(name: str) -> None:
    dtd = load_dtd(name)
    for s in shapes(500, name, descendant=0.0):
        names = s.binding[1:].split("/")
        assert names[0] == dtd.root
        relative = [path.removesuffix("/text()") for path, _, _ in s.predicates] + s.returned
        for path in [names, *([s.bound, *path[1:].split("/")] for path in relative if path)]:
            assert all(child in dtd.children[parent] for parent, child in pairwise(path))


@pytest.mark.parametrize("name", NAMES)
def test_every_path_can_be_met(name: str) -> None:
    """In a document made of all walks, some binding has all that is compared or returned."""
    dtd = load_dtd(name)
    document = everything(dtd, 5)
    for s in shapes(200, name, descendant=0.5):
        paths = [path.removesuffix("/text()") for path, _, _ in s.predicates] + s.returned
        conditions = "".join(f"[.{path}]" for path in paths if path)
        assert etree.XPath(s.binding + conditions)(document), s


@pytest.mark.parametrize("name", NAMES)
def test_predicates_compare_what_has_values(name: str) -> None:
    dtd = load_dtd(name)
    kinds = Counter[str]()
    for s in shapes(1000, name):
        for path, attribute, _ in s.predicates:
            names = [s.bound, *(test for _, test in steps(path))]
            last = names[-1]
            if last == "text()":
                owner = dtd.elements[names[-2]]
                assert owner.has_text and not owner.only_text
            elif attribute:
                assert attribute[2:] in {a.name for a in dtd.elements[last].attributes}
            else:
                assert dtd.elements[last].only_text
            kinds["text()" if last == "text()" else "@" if attribute else "element"] += 1
    assert min(kinds["@"], kinds["element"]) > 50


@pytest.mark.parametrize("name", NAMES)
def test_queries_find_something_in_messages(name: str) -> None:
    """A good part of the equality predicates hit messages of the same values."""
    dtd = load_dtd(name)
    messages = [
        etree.fromstring(m) for m in MessageGenerator(dtd, attribute_probability=0.7, values=5).take(100)
    ]

    def met(query: str) -> bool:
        binding, where, _ = QUERY.fullmatch(query).groups()  # type: ignore[union-attr]
        path = etree.XPath(f"{binding}[{where.replace('$b/', './')}]")
        return any(path(message) for message in messages)

    queries = TransformationGenerator(dtd, values=5).take(150)
    assert sum(map(met, queries)) / len(queries) > 0.4


@pytest.mark.parametrize("file", REAL_FILES[:4])
def test_queries_on_published_dtds(file: str) -> None:
    for query in TransformationGenerator(load_dtd(real(file)), predicate_paths=2).take(100):
        s = shape(query)
        for path in [s.binding, *(f".{path}" for path in s.returned)]:
            etree.XPath(path)


@pytest.mark.parametrize("descendant", [0.0, 0.2, 1.0])
def test_descendants_come_with_their_probability(descendant: float) -> None:
    found = Counter(
        axis
        for s in shapes(descendant=descendant, return_paths=1, dtd="news")
        for path in (s.binding, *s.returned)
        for axis, _ in steps(path)
    )
    assert found["//"] / found.total() == pytest.approx(descendant, abs=0.03 if 0 < descendant < 1 else 0)


def test_the_books_of_a_bibliography_are_bound() -> None:
    """With D1 = 2 nothing else can be, as in the thesis."""
    dtd = load_dtd(real("bib/bib.dtd"))
    queries = TransformationGenerator(dtd, binding_depth=2, descendant=0.0).take(200)
    assert {shape(query).binding for query in queries} == {"/bib/book"}


def test_predicate_values() -> None:
    def seen(**parameters: Any) -> set[str]:
        found = shapes(dtd="quotes", **parameters)
        return {value for s in found for path, _, value in s.predicates if path}

    assert {str(i) for i in range(1, 11)} <= seen()
    assert {value for value in seen(values=3) if value.isdecimal()} == {"1", "2", "3"}
    assert all(value.startswith("'") for value in seen(numeric=False))


def test_distinct_queries_never_repeat() -> None:
    queries = TransformationGenerator(load_dtd("book"), predicate_paths=2).take(10_000)
    assert len(set(queries)) == 10_000
    assert len(set(drawn(10_000, dtd="quotes"))) < 9_900


def test_the_first_queries_are_the_natural_ones() -> None:
    """Distinctness changes only what it must: up to the first repeat the two sequences agree."""
    plain = drawn(1000, dtd="quotes", values=3)
    repeat = next(i for i in range(1000) if plain[i] in plain[:i])
    assert repeat > 5
    assert TransformationGenerator(load_dtd("quotes"), values=3).take(repeat) == plain[:repeat]


def test_an_exhausted_space_says_how_many_were_found(tmp_path: Path) -> None:
    dtd = written(tmp_path, "<!ELEMENT a (b | c)><!ELEMENT b (#PCDATA)><!ELEMENT c EMPTY>")
    # /a or //a; b = 1 or 2 by / or //; one of /b, /c, //b or //c.
    setting: dict[str, Any] = {"values": 2, "return_paths": 1}
    assert len(TransformationGenerator(dtd, **setting).take(32)) == 32
    with pytest.raises(QueriesExhausted, match="found only 32 distinct queries on DTD 'test'") as caught:
        TransformationGenerator(dtd, **setting).take(33)
    assert caught.value.found == 32


@pytest.mark.parametrize(
    ("declarations", "parameters"),
    [
        ("<!ELEMENT a (#PCDATA)>", {}),
        ("<!ELEMENT a (b)><!ELEMENT b EMPTY>", {"return_paths": 1}),
        ("<!ELEMENT a (b)><!ELEMENT b (#PCDATA)>", {"descendant": 0.0}),
    ],
    ids=["nothing can be bound", "nothing has a value", "one path where two are asked for"],
)
def test_impossible_queries_are_an_error(
    tmp_path: Path, declarations: str, parameters: dict[str, Any]
) -> None:
    dtd = written(tmp_path, declarations)
    with pytest.raises(QueriesExhausted, match="no element of DTD 'test' down to level 3 can take 1 pred"):
        TransformationGenerator(dtd, distinct=False, **parameters).query()


def test_the_same_seed_gives_the_same_queries() -> None:
    assert drawn(200, seed=3) == drawn(200, seed=3)
    assert drawn(200, seed=3) != drawn(200, seed=4)


def test_take_and_iteration_go_on_where_the_other_stopped() -> None:
    one, other = (TransformationGenerator(load_dtd("news")) for _ in range(2))
    assert [*one.take(2), one.query(), *islice(one, 2)] == other.take(5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"binding_depth": 0}, "binding_depth must be at least 1, not 0"),
        ({"predicate_paths": -1}, "predicate_paths must be at least 0, not -1"),
        ({"return_paths": 0}, "return_paths must be at least 1, not 0"),
        ({"relative_depth": 0}, "relative_depth must be at least 1, not 0"),
        ({"descendant": 2}, "descendant must be a probability from 0 to 1, not 2"),
        ({"name_skew": -1}, "name_skew must be at least 0, not -1"),
        ({"values": 0}, "values must be at least 1, not 0"),
    ],
)
def test_parameters_out_of_range(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransformationGenerator(load_dtd("book"), **parameters)
