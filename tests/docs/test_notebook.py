"""Answers and explanations as HTML for notebooks, in which all text of users is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lxml import html

from sapwood import Broker, Matcher

HOSTILE = "<script>alert('\"&amp;')</script>"
NAMESPACES = {"x": f"urn:{HOSTILE}"}
MESSAGE = "<a k='&lt;script>'><b><script>alert(1)</script></b></a>"


def _page(source: str) -> Any:
    return html.fromstring(source)


def shown() -> Iterator[tuple[str, Any]]:
    """Yield every kind of object that notebooks show as HTML, with text that must be escaped."""
    with Broker(NAMESPACES) as broker:
        broker.subscribe(HOSTILE, f'//b[. != "{HOSTILE.replace(chr(34), "")}"]')
        broker.subscribe("refined", f"count(//b[. != {HOSTILE.split(chr(39))[0]!r}]) = 1")
        broker.subscribe("t", "for $b in //b return <script>{$b}<i/></script>")
        broker.subscribe("j", "S//a[b->c] JOIN{c = d, 1 s} S//a[@k->d]")
        broker.subscribe("no", "//b = '<script>'")
        matches = broker.filters.match(MESSAGE)
        assert list(matches) == [HOSTILE, "refined"]
        yield "matches", matches
        yield "no matches", broker.filters.match("<none/>")
        for id in broker:
            yield f"explain {id!r}", broker.explain(id)
            yield f"why {id!r}", broker.why(id, MESSAGE)


@pytest.mark.parametrize("number", range(12))
def test_nothing_that_users_wrote_is_markup(number: int) -> None:
    name, value = list(shown())[number]
    page = html.fragment_fromstring(value._repr_html_(), create_parent="div")
    tags = {element.tag for element in page.iter()}
    assert tags <= {"div", "table", "tbody", "tr", "th", "td", "code", "br"}, name
    assert not any(key.startswith("on") for element in page.iter() for key in element.attrib)


def test_every_kind_of_answer_is_shown() -> None:
    assert len(list(shown())) == 12


def test_matches_are_counted_and_the_first_are_listed() -> None:
    matcher = Matcher()
    matcher.add_many((f"s{n}", "/a") for n in range(25))
    page = _page(matcher.match("<a/>")._repr_html_())
    assert page.xpath("string(//th)") == "25 subscriptions"
    assert page.xpath("//code/text()") == [*(f"s{n}" for n in range(20)), "and 5 more"]


def test_a_hostile_id_is_shown_as_it_is() -> None:
    found = dict(shown())
    assert HOSTILE in _page(found["matches"]._repr_html_()).xpath("//code/text()")


def test_an_explanation_has_what_its_text_has() -> None:
    for name, value in shown():
        if name.startswith("explain"):
            page = _page(value._repr_html_())
            text = " ".join(str(value).split())
            for code in page.xpath("//td[not(preceding-sibling::th[. = 'shared'])]/code"):
                assert " ".join(code.text_content().split()) in text, name


def test_why_shows_the_steps_and_what_is_there_instead() -> None:
    matcher = Matcher()
    matcher.add(1, "/a/b[. = 'y']")
    page = _page(f"<div>{matcher.why(1, '<a><b>x</b></a>')._repr_html_()}</div>")
    assert "b is 'x'" in page.xpath("//code/text()")
    assert page.xpath("(//table)[2]//td[1]//text()") == ["/a"]
