"""The public names exist, and no others are exported."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path
from types import ModuleType

import pytest
from numpy.typing import NDArray

import sapwood
from sapwood import (
    Broker,
    Delivery,
    Explanation,
    Limits,
    Matcher,
    Matches,
    MessageError,
    Node,
    QueryError,
    SapwoodError,
    Tuning,
    Why,
)


def test_all_is_what_is_visible() -> None:
    visible = {name for name in dir(sapwood) if not name.startswith("_")}
    assert visible == set(sapwood.__all__)
    loaded = {name for name in visible if not isinstance(getattr(sapwood, name), ModuleType)}
    assert loaded == visible
    assert list(sapwood.__all__) == sorted(sapwood.__all__)


def test_the_names_of_the_design_are_there() -> None:
    assert {"Matcher", "Limits", "QueryError", "MessageError"} <= set(sapwood.__all__)


def test_everything_public_is_described() -> None:
    for name in sapwood.__all__:
        value = getattr(sapwood, name)
        assert value.__doc__, name
        for member, function in vars(value).items():
            is_plain = inspect.isfunction(function) or isinstance(function, property)
            if is_plain and not member.startswith("_") and value is Matcher:
                assert function.__doc__, f"{name}.{member}"


TYPES_FOR_CHECKERS = {"NDArray": NDArray}
"""Types that the engine imports for type checkers only, since `numpy.typing` is slow to import."""


def test_everything_public_is_annotated() -> None:
    for name in sapwood.__all__:
        value = getattr(sapwood, name)
        for member, function in vars(value).items():
            if inspect.isfunction(function) and not member.startswith("_") and not is_dataclass(value):
                hints = typing.get_type_hints(function, localns=TYPES_FOR_CHECKERS)
                parameters = [p for p in inspect.signature(function).parameters if p != "self"]
                assert "return" in hints, f"{name}.{member}"
                assert set(parameters) <= set(hints), f"{name}.{member}"


def test_the_interface_of_a_matcher() -> None:
    """The example of the design, word by word."""
    m = Matcher(namespaces={"cbc": "urn:x"})
    m.add("s1", "/nitf//tobject.subject[@tobject.subject.type='Stock']")
    m.add_many([("s2", "//cbc:ID"), ("s3", "//body")])
    m.remove("s3")
    assert "s1" in m
    assert len(m) == 2
    message = b"<nitf><head><tobject.subject tobject.subject.type='Stock'/></head></nitf>"
    hits = m.match(message)
    assert isinstance(hits, Matches)
    assert len(hits) == 1
    assert list(hits) == ["s1"]
    assert "s1" in hits
    assert hits.numbers.tolist() == [0]
    several = m.match_many([message, b"<x/>"])
    assert isinstance(several, Iterator)
    assert [len(matches) for matches in several] == [1, 0]
    ((id, nodes),) = m.select(message).items()
    assert id == "s1"
    assert nodes == [
        Node(3, "element", "", "<tobject.subject tobject.subject.type='Stock'/>", "tobject.subject")
    ]
    with pytest.raises(QueryError):
        m.add("s4", "/nitf[")
    with pytest.raises(MessageError):
        m.match(b"<nitf>")


def test_signatures_that_others_build_on() -> None:
    def parameters(function: object) -> list[str]:
        return list(inspect.signature(function).parameters)  # type: ignore[arg-type]

    assert parameters(Matcher)[:2] == ["namespaces", "limits"]
    assert parameters(Matcher.add) == ["self", "id", "query"]
    assert parameters(Matcher.add_many)[:2] == ["self", "pairs"]
    assert parameters(Matcher.remove) == ["self", "id"]
    assert parameters(Matcher.replace) == ["self", "id", "query"]
    assert parameters(Matcher.match) == ["self", "message"]
    assert parameters(Matcher.match_many) == ["self", "messages", "threads"]
    assert parameters(Matcher.select) == ["self", "message"]
    assert parameters(Matcher.explain) == ["self", "id"]
    assert parameters(Matcher.why) == ["self", "id", "message"]
    assert [field.name for field in fields(Node)][:4] == ["index", "kind", "value", "xml"]
    assert [field.name for field in fields(Limits)] == [
        "bytes",
        "depth",
        "attributes",
        "name_length",
        "entity_expansion",
        "result",
        "query_seconds",
        "query_memory",
    ]
    assert parameters(Broker)[:2] == ["namespaces", "limits"]
    assert parameters(Broker.subscribe) == ["self", "id", "query", "streams", "callback"]
    assert parameters(Broker.unsubscribe) == ["self", "id"]
    assert parameters(Broker.replace) == ["self", "id", "query"]
    assert parameters(Broker.publish)[:2] == ["self", "message"]
    assert Delivery._fields == ("subscription", "message", "body", "meeting")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Limits(), "depth"),
        (Tuning(), "cache"),
        (Node(1, "element", "", "<a/>"), "index"),
        (Explanation("/a", "/a", (("/a",),), "leaves"), "query"),
        (Why("/a", True, "each step has its node", ()), "matched"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_immutable(value: object, name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, 0)


def test_errors_form_a_tree() -> None:
    assert issubclass(QueryError, SapwoodError)
    assert issubclass(MessageError, SapwoodError)
    assert issubclass(QueryError, ValueError)
    assert issubclass(MessageError, ValueError)
    assert not issubclass(QueryError, MessageError)


def test_a_matcher_closes_itself_and_may_be_used_again() -> None:
    with Matcher() as matcher:
        matcher.add("q", "//b/..")
        assert len(matcher.match("<a><b/></a>")) == 1
    matcher.close()
    assert len(matcher.match("<a><b/></a>")) == 1
    matcher.close()


def test_the_package_is_typed() -> None:
    assert (Path(sapwood.__file__).parent / "py.typed").exists()


def test_importing_is_light_and_quiet() -> None:
    """Nothing is printed, and nothing that only the command or the benchmarks need is loaded."""
    heavy = ["matplotlib", "rich", "typer", "sapwood.bench", "sapwood.cli"]
    code = f"import sys, sapwood; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    assert done.stderr == ""
