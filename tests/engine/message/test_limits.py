"""Each limit: a message just within it passes, one just beyond it is refused with its position."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sapwood import Limits, Matcher, MessageError

POPULATIONS = {
    "plain paths": ["/a", "//b"],
    "values": ["/a", "//b[. = 'v']", "//*[@x = 'v' and @y]"],
    "refined": ["/a", "count(//b) * 1 = 3"],
}
every_population = pytest.mark.parametrize("queries", POPULATIONS.values(), ids=POPULATIONS.keys())


def check(limits: Limits, within: str | bytes, beyond: str | bytes, queries: list[str]) -> MessageError:
    """What is within matches, what is beyond is refused, and then what is within matches as before."""
    matcher = Matcher(limits=limits)
    matcher.add_many(enumerate(queries))
    asked: list[Callable[[str | bytes], object]] = [matcher.match, matcher.select]
    error: MessageError | None = None
    for ask in asked:
        assert 0 in matcher.match(within)
        assert 0 in matcher.select(within)
        with pytest.raises(MessageError) as caught:
            ask(beyond)
        error = caught.value
        assert 0 in matcher.match(within)
    assert error is not None
    return error


@every_population
def test_bytes(queries: list[str]) -> None:
    error = check(Limits(bytes=1_000), "<a>" + "x" * 993 + "</a>", "<a>" + "x" * 994 + "</a>", queries)
    assert error.reason == "the message has 1,001 bytes; the limit is 1,000"
    assert (error.line, error.column) == (None, None)  # no place is at fault


def test_bytes_of_a_str_are_those_of_utf_8() -> None:
    check(Limits(bytes=11), "<a>éé</a>", "<a>ééx</a>", ["/a"])


@every_population
def test_depth(queries: list[str]) -> None:
    def nested(depth: int) -> str:
        return "<a>\n" * depth + "</a>" * depth

    error = check(Limits(depth=20), nested(20), nested(21), queries)
    assert error.reason == "elements are nested 21 deep; the limit is 20"
    assert error.line == 21
    assert error.column in range(1, 5)  # at the tag or right behind it


@every_population
def test_depth_counts_elements_of_entities(queries: list[str]) -> None:
    doctype = "<!DOCTYPE a [<!ENTITY e '<a><a/></a>'>]>"
    error = check(Limits(depth=3), doctype + "<a>&e;</a>", doctype + "<a><b>&e;</b></a>", queries)
    assert "4 deep" in error.reason


@every_population
def test_attributes(queries: list[str]) -> None:
    def with_attributes(n: int) -> str:
        return "<a>\n <b " + " ".join(f"x{i}=''" for i in range(n)) + "/></a>"

    error = check(Limits(attributes=30), with_attributes(30), with_attributes(31), queries)
    assert error.reason == "an element has 31 attributes; the limit is 30"
    assert error.line == 2
    assert error.column is not None
    assert error.column >= 2


def test_attributes_count_defaults_as_well() -> None:
    doctype = "<!DOCTYPE a [<!ATTLIST b x CDATA 'v' y CDATA 'v'>]>"
    error = check(
        Limits(attributes=3), doctype + "<a><b z=''/></a>", doctype + "<a><b z='' w=''/></a>", ["/a"]
    )
    assert "4 attributes" in error.reason


@every_population
@pytest.mark.parametrize(
    "template",
    [
        "<a>\n <{}/></a>",
        "<a>\n <b {}=''/></a>",
        "<a><b></b>\n <{}>x</{}></a>",
        "<a xmlns:p='u'>\n <p:{}/></a>",  # counted as u}name, so two more
        "<a xmlns:p='u'>\n <b p:{}=''/></a>",
    ],
)
def test_name_length(template: str, queries: list[str]) -> None:
    of_namespace = 2 if "p:" in template else 0
    within, beyond = (template.replace("{}", "n" * (n - of_namespace)) for n in (50, 51))
    error = check(Limits(name_length=50), within, beyond, queries)
    assert error.reason == "a name has 51 characters; the limit is 50"


def test_name_length_says_where() -> None:
    error = check(Limits(name_length=50), "<a/>", f"<a>\n <{'n' * 51}/>\n</a>", ["/a"])
    assert error.line == 2
    assert error.column is not None


@every_population
@pytest.mark.parametrize(
    ("entities", "body"),
    [
        ("<!ENTITY e '{}'>", "<a>&e;</a>"),
        ("<!ENTITY e '{}'>", "<a><b x='&e;'/></a>"),
        ("<!ENTITY d '{}'><!ENTITY e '&d;'>", "<a>&e;</a>"),
    ],
)
def test_entity_expansion(entities: str, body: str, queries: list[str]) -> None:
    """The limit is on an estimate that may count a little more than is expanded, never less."""

    def message(size: int) -> str:
        return f"<!DOCTYPE a [\n{entities.replace('{}', 'v' * size)}]>\n{body}"

    error = check(Limits(entity_expansion=1_000), message(450), message(1_001), queries)
    assert "entities expand to" in error.reason
    assert "the limit is 1,000" in error.reason
    assert error.line is not None
    assert error.column is not None


def test_entity_expansion_counts_every_reference() -> None:
    doctype = f"<!DOCTYPE a [<!ENTITY e '{'v' * 100}'>]>"
    check(
        Limits(entity_expansion=1_000),
        f"{doctype}<a>{'&e;' * 10}</a>",
        f"{doctype}<a>{'&e;' * 11}</a>",
        ["/a"],
    )


def test_no_expansion_at_all_may_be_allowed() -> None:
    doctype = "<!DOCTYPE a [<!ENTITY e 'v'>]>"
    check(Limits(entity_expansion=0), f"{doctype}<a>v&amp;&#64;</a>", f"{doctype}<a>&e;</a>", ["/a"])


@pytest.mark.parametrize("name", ["bytes", "depth", "attributes", "name_length", "entity_expansion"])
def test_a_limit_cannot_be_negative(name: str) -> None:
    with pytest.raises(ValueError, match=rf"Limits\.{name}"):
        Limits(**{name: -1})


def test_a_depth_that_lxml_cannot_read_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="depth"):
        Limits(depth=2_001)


@every_population
def test_the_deepest_message_that_may_be_asked_for(queries: list[str]) -> None:
    matcher = Matcher(limits=Limits(depth=2_000))
    matcher.add_many(enumerate([*queries, "count(//*[not(*)]/ancestor::*) = 1999", "//*[not(*)][. = 'v']"]))
    message = "<a>" * 2_000 + "v" + "</a>" * 2_000
    assert list(matcher.match(message)) == [0, len(queries), len(queries) + 1]
    assert matcher.select(message)[len(queries) + 1][0].index == 2_000


def test_large_text_is_no_reason_to_refuse() -> None:
    """libxml2 has limits of its own, on text nodes for instance, which are lifted."""
    matcher = Matcher()
    matcher.add_many(enumerate(["/a[starts-with(., 'x')]", "string-length(/a) = 11000000", "/a"]))
    assert list(matcher.match("<a>" + "x" * 11_000_000 + "</a>")) == [0, 1, 2]
