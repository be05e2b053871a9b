"""Names in queries are those of XML: combining marks and extenders included, other signs not."""

from __future__ import annotations

import pytest
from lxml import etree

from sapwood import Broker, Matcher, QueryError
from sapwood.lang.names import name_length

NAMES = ["กิ", "a\u0301", "á", "a·b", "Ελένη", "naïve", "_", "ก.1-2", "日本語"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("query", ["//{}", "/r/{}[@{}]", "//{}[position() mod 2 = 1]", "//p:{}", "//@{}"])
def test_a_name_of_xml_can_be_asked_for(name: str, query: str) -> None:
    asked = query.replace("{}", name)
    message = f'<r xmlns:p="urn:p"><{name} {name}="1"/><p:{name}/></r>'
    namespaces = {"p": "urn:p"}
    assert etree.fromstring(message).xpath(asked, namespaces=namespaces)
    with Matcher(namespaces) as matcher:
        matcher.add("s", asked)
        assert "s" in matcher.match(message)
        assert "s" not in matcher.match("<r/>")


@pytest.mark.parametrize("name", NAMES)
def test_names_in_transformations_and_joins(name: str) -> None:
    with Broker() as broker:
        broker.subscribe("made", f"for ${name} in /r/{name} return <{name}>{{${name}/@{name}}}</{name}>")
        broker.subscribe("joined", f"s//{name}[@{name}->x] FOLLOWED BY{{x = y, 1 day}} s//{name}[@{name}->y]")
        message = f'<r><{name} {name}="1"/></r>'
        first = broker.publish(message, stream="s", time=0)
        assert [d.body.decode() for d in first] == [f'<{name} {name}="1"/>']
        assert [d.subscription for d in broker.publish(message, stream="s", time=1)] == ["made", "joined"]


@pytest.mark.parametrize(
    ("query", "character"),
    [
        ("//a²", "²"),
        ("//×a", "×"),
        ("//a→b", "→"),
        ("//a[b ≥ 5]", "≥"),
        ("//a[@x = ‘b’]", "‘"),
        ("//p:×", ":"),
    ],
)
def test_other_signs_are_pointed_at(query: str, character: str) -> None:
    with pytest.raises(QueryError) as caught:
        Matcher({"p": "urn:p"}).add("s", query)
    assert query[caught.value.position or 0] == character


def test_every_name_that_libxml2_reads_in_a_query_is_a_name() -> None:
    letters = [chr(code) for code in (*range(0x80, 0xD800, 7), *range(0xE000, 0x12000, 5))]
    missing = [c for c in letters if _reads(f"//a{c}") and name_length(f"a{c}") != 2]
    assert not missing
    assert not [c for c in letters if _reads(f"//{c}a") and name_length(f"{c}a") != 2]


def _reads(query: str) -> bool:
    try:
        etree.XPath(query)
    except (etree.XPathSyntaxError, ValueError):
        return False
    return True
