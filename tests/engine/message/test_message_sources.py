"""The forms in which messages are passed: bytes, text, paths of files, and trees of lxml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from sapwood import Broker, Matcher, MessageError
from sapwood.relational import RelationalMatcher

XML = "<order xmlns:x='urn:x' id='7'><x:total>12 €</x:total></order>"
QUERY = "/order[@id = 7]/x:total[contains(., '€')]"


def _file(folder: Path) -> Path:
    path = folder / "order.xml"
    path.write_bytes(f"<?xml version='1.0' encoding='iso-8859-15'?>{XML}".encode("iso-8859-15"))
    return path


FORMS: dict[str, Callable[[Path], Any]] = {
    "bytes": lambda folder: XML.encode(),
    "bytearray": lambda folder: bytearray(XML.encode()),
    "memoryview": lambda folder: memoryview(XML.encode()),
    "str": lambda folder: XML,
    "path": _file,
    "element": lambda folder: etree.fromstring(XML),
    "tree": lambda folder: etree.parse(_file(folder)),
    "element in a tree": lambda folder: etree.fromstring(f"<all>{XML}and more</all>")[0],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_message_is_matched_selected_explained_and_published(
    form: str, tmp_path: Path
) -> None:
    message = FORMS[form](tmp_path)
    with Matcher({"x": "urn:x"}) as matcher:
        matcher.add("native", QUERY)
        matcher.add("refined", "count(/order/x:total) = 1")
        matcher.add("other", "/all")
        assert list(matcher.match(message)) == ["native", "refined"]
        assert [list(found) for found in matcher.match_many([message])] == [["native", "refined"]]
        assert [node.value for node in matcher.select(message)["native"]] == ["12 €"]
        assert matcher.why("native", message).matched
    with Broker({"x": "urn:x"}) as broker:
        broker.subscribe("t", "for $o in /order return <got>{string($o/x:total)}</got>")
        assert [d.body.decode() for d in broker.publish(message)] == ["<got>12 €</got>"]


def test_tables_take_paths_and_trees_and_go_on_after_a_missing_file(tmp_path: Path) -> None:
    with RelationalMatcher(tmp_path / "tables") as matcher:
        matcher.add("o", "/order/@id")
        forms: list[Any] = [_file(tmp_path), tmp_path / "absent.xml", etree.fromstring(XML), "<other/>"]
        found = [m if isinstance(m, MessageError) else list(m) for m in matcher.match_each(forms)]
        assert [found[0], found[2], found[3]] == [["o"], ["o"], []]
        assert isinstance(found[1], MessageError)


def test_nodes_around_the_root_of_a_tree_are_part_of_the_message() -> None:
    tree = etree.ElementTree(etree.fromstring("<?target x?><a/>"))
    with Matcher() as matcher:
        matcher.add("pi", "/processing-instruction()")
        assert list(matcher.match(tree)) == ["pi"]
        assert list(matcher.match(tree.getroot())) == []


def test_files_that_cannot_be_read_are_refused_as_messages(tmp_path: Path) -> None:
    matcher = Matcher()
    for path, reason in [
        (tmp_path / "absent.xml", "there is no file '.*absent.xml'"),
        (tmp_path, "cannot be read: Is a directory"),
        (Path("a\0b"), "cannot be read"),
    ]:
        with pytest.raises(MessageError, match=reason):
            matcher.match(path)
    with pytest.raises(MessageError, match="the tree has no root element"):
        matcher.match(etree.ElementTree())


def test_a_str_is_never_taken_for_the_name_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(MessageError, match="line 1, column 1"):
        Matcher().match(str(_file(tmp_path)))


@pytest.mark.parametrize(
    ("wrong", "called"),
    [(None, "NoneType"), (7, "int"), ([b"<a/>"], "list"), ({}, "dict"), (object, "type")],
)
def test_anything_else_is_a_type_error_that_says_what_is_taken(wrong: Any, called: str) -> None:
    expected = f"a message is bytes, str, a pathlib.Path, or an element or tree of lxml, not {called}"
    for take in (Matcher().match, Matcher().select, Broker().publish):
        with pytest.raises(TypeError, match=f"^{expected}$"):
            take(wrong)


def test_elements_of_the_standard_library_are_named_in_the_error() -> None:
    from xml.etree.ElementTree import Element

    with pytest.raises(TypeError, match=r"not xml\.etree\.ElementTree\.Element$"):
        Matcher().match(Element("a"))  # type: ignore[arg-type]
