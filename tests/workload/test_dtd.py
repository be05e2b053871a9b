from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from sapwood.workload import Attribute, Content, Default, DtdError, dtds, load_dtd
from tests.workload.support import NAMES, SHIPPED, real, written


def test_shipped_dtds_are_listed_and_found_by_name() -> None:
    assert dtds() == list(NAMES)
    for name in NAMES:
        dtd = load_dtd(name)
        assert dtd.name == name
        assert set(dtd.reachable) == set(dtd.elements), "no element is out of reach"


@pytest.mark.parametrize("name", NAMES)
def test_shipped_dtds_say_what_they_model_and_their_root(name: str) -> None:
    text = (SHIPPED / f"{name}.dtd").read_text()
    assert text.startswith("<!--")
    assert f"Root: {load_dtd(name).root}." in text.partition("-->")[0]


@pytest.mark.parametrize(
    ("name", "root", "recursive"),
    [
        ("auction", "auction", {"description", "points", "point", "mark"}),
        ("bibliography", "bibliography", set()),
        ("book", "book", {"section"}),
        (
            "news",
            "news",
            {"section", "list", "item", "table", "row", "cell", "em", "strong", "quote", "link"},
        ),
        ("quotes", "quotes", set()),
    ],
)
def test_root_and_recursion_of_the_shipped(name: str, root: str, recursive: set[str]) -> None:
    dtd = load_dtd(name)
    assert dtd.root == root
    assert dtd.recursive == recursive


def test_recursion_through_others_is_kept_apart_from_other_recursion() -> None:
    cycles = load_dtd("auction").cycles
    assert set(cycles) == {frozenset({"mark"}), frozenset({"description", "points", "point"})}


@pytest.mark.parametrize(
    ("file", "root", "elements", "recursive"),
    [
        ("nitf/nitf-2-5.dtd", "nitf", 123, 26),  # as the thesis counts them; bare CR ends its lines
        ("xmark/auction.dtd", "site", 77, 5),
        ("dblp/dblp.dtd", "dblp", 37, 5),
        ("bib/bib.dtd", "bib", 10, 0),
    ],
)
def test_published_dtds(file: str, root: str, elements: int, recursive: int) -> None:
    dtd = load_dtd(real(file))
    assert (dtd.root, len(dtd.elements), len(dtd.recursive)) == (root, elements, recursive)


def test_content_models_come_back_as_written(tmp_path: Path) -> None:
    models = {
        "a": "(b, (c | d)+, (e?, f*)?, g)",
        "b": "(c | (d, e) | (f | g)*)",
        "c": "(d)*",
        "d": "((e, f), (g | f))",
    }
    text = "".join(f"<!ELEMENT {name} {model}>" for name, model in models.items())
    dtd = written(tmp_path, text + "".join(f"<!ELEMENT {name} EMPTY>" for name in "efg"))
    for name in "abd":
        assert str(dtd.elements[name].model) == models[name]
    assert str(dtd.elements["c"].model) == "d*"  # a group of one is its part


def test_kinds_of_content(tmp_path: Path) -> None:
    dtd = written(
        tmp_path,
        """<!ELEMENT r (a, b)> <!ELEMENT a (#PCDATA)> <!ELEMENT b (#PCDATA | c | d)*>
           <!ELEMENT c EMPTY>  <!ELEMENT d ANY>""",
    )
    kinds = [element.content for element in dtd.elements.values()]
    assert kinds == [Content.CHILDREN, Content.MIXED, Content.MIXED, Content.EMPTY, Content.ANY]
    assert [e.name for e in dtd.elements.values() if e.only_text] == ["a"]
    assert [e.name for e in dtd.elements.values() if e.has_text] == ["a", "b", "d"]
    assert str(dtd.elements["b"].model) == "(c | d)*"
    assert dtd.children == {
        "r": ("a", "b"),
        "a": (),
        "b": ("c", "d"),
        "c": (),
        "d": ("r", "a", "b", "c", "d"),
    }
    assert dtd.parents["c"] == ("b", "d")
    assert dtd.root == "r", "ANY contains everything, but that makes no root of nothing"


def test_attributes(tmp_path: Path) -> None:
    dtd = written(
        tmp_path,
        """<!ELEMENT a EMPTY>
           <!ATTLIST a i ID #REQUIRED  k (x | y) "y"  f CDATA #FIXED "1 &lt; 2 &amp;c"  n NMTOKENS #IMPLIED
                       xml:lang CDATA #IMPLIED  xmlns:p CDATA #FIXED "urn:p">""",
    )
    found = {attribute.name: attribute for attribute in dtd.elements["a"].attributes}
    assert found["i"] == Attribute("i", "ID", Default.REQUIRED) and found["i"].required
    assert found["k"] == Attribute("k", "ENUMERATION", Default.VALUE, "y", ("x", "y"))
    assert found["f"] == Attribute("f", "CDATA", Default.FIXED, "1 < 2 &c")
    assert found["n"] == Attribute("n", "NMTOKENS", Default.IMPLIED)
    assert [name for name, attribute in found.items() if attribute.namespace] == ["xmlns:p"]
    assert "xml:lang" in found


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("<!ELEMENT b EMPTY><!ELEMENT a (b)>", "a"),
        ("<!ELEMENT b EMPTY><!ELEMENT a (a?, b)>", "a"),  # to contain itself does not count
        ("<!ELEMENT b EMPTY><!ELEMENT a EMPTY>", "b"),  # two candidates: the first declared
        ("<!ELEMENT b (a?)><!ELEMENT a (b?)>", "b"),  # none: the first declared
    ],
)
def test_root_is_inferred(tmp_path: Path, text: str, root: str) -> None:
    assert written(tmp_path, text).root == root


def test_root_can_be_given() -> None:
    dtd = load_dtd("news", root="story")
    assert dtd.root == dtd.reachable[0] == "story"
    assert "head" not in dtd.reachable


def test_heights_are_those_of_the_smallest_subtrees(tmp_path: Path) -> None:
    dtd = written(
        tmp_path,
        """<!ELEMENT leaf EMPTY>              <!ELEMENT either (leaf | deep)>
           <!ELEMENT deep (either, either*)>  <!ELEMENT loose (deep?, endless*)>
           <!ELEMENT endless (endless)>       <!ELEMENT broken (nowhere)>
           <!ELEMENT saved (endless | broken | deep)>""",
    )
    assert dtd.heights == {
        "leaf": 1,
        "either": 2,
        "deep": 3,
        "loose": 1,
        "endless": math.inf,
        "broken": math.inf,
        "saved": 4,
    }


def test_undeclared_names_are_no_part_of_the_graph(tmp_path: Path) -> None:
    dtd = written(tmp_path, "<!ELEMENT a (b?, c?)><!ELEMENT b EMPTY>")
    assert dtd.elements["a"].mentioned == ("b", "c")
    assert dtd.children["a"] == ("b",)


def test_prefixes_survive_in_models(tmp_path: Path) -> None:
    dtd = written(tmp_path, "<!ELEMENT p:a (p:b, c)><!ELEMENT p:b EMPTY><!ELEMENT c EMPTY>")
    assert dtd.children["p:a"] == ("p:b", "c")


def test_a_dtd_cannot_be_changed() -> None:
    dtd = load_dtd("book")
    with pytest.raises(FrozenInstanceError):
        dtd.root = "section"  # type: ignore[misc]
    with pytest.raises(TypeError):
        dtd.elements["x"] = dtd.elements["book"]  # type: ignore[index]


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        DtdError, match="no DTD 'novel'; shipped are auction, bibliography, book, news, observatory, quotes"
    ):
        load_dtd("novel")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DtdError, match=r"no DTD '.*gone\.dtd'$"):
        load_dtd(tmp_path / "gone.dtd")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!ELEMENT a EMPTY>\n<!ELEMENT b (c,>", "cannot read DTD .*, line 2: "),
        ("this is no DTD", "cannot read DTD"),
        ("<!-- nothing -->", "declares no elements"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DtdError, match=message):
        written(tmp_path, text)


def test_an_undeclared_root() -> None:
    with pytest.raises(DtdError, match="DTD 'book' declares no element 'chapter'"):
        load_dtd("book", root="chapter")
