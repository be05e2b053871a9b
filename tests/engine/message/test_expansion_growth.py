"""The cost of a document type declaration is linear in the message, whatever it declares and refers to."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from sapwood import Limits, Matcher, MessageError
from sapwood.engine.message import doctype_limits
from tests.support.growth import assert_linear, cpu_seconds
from tests.support.requirements import FULL

pytestmark = pytest.mark.slow

SIZES = (10_000, 100_000, 1_000_000) if FULL else (10_000, 100_000)
ENTITY = "<!DOCTYPE a [<!ENTITY e 'x'>]>"


def many(unit: str, size: int) -> str:
    return unit * (size // len(unit))


def numbered(template: str, size: int) -> str:
    return "".join(template.replace("{}", str(i)) for i in range(size // (len(template) + 4)))


def long_entity(size: int) -> str:
    return f"<!ENTITY e '{'v' * (size // 2)}'>"


def default(size: int) -> str:
    return f"<!ATTLIST b x CDATA '{'v' * (size // 2)}'>"


FORMS: dict[str, Callable[[int], str]] = {
    "comments never closed": lambda n: f"{ENTITY}<a>{many('<!--', n)}",
    "instructions never closed": lambda n: f"{ENTITY}<a>{many('<?', n)}",
    "CDATA never closed": lambda n: f"{ENTITY}<a>{many('<![CDATA[', n)}",
    "comments": lambda n: f"{ENTITY}<a>{many('<!---->', n)}</a>",
    "a comment of references": lambda n: f"{ENTITY}<a><!--{many('&e;', n)}--></a>",
    "CDATA of references": lambda n: f"<!DOCTYPE a SYSTEM 'u'><a><![CDATA[{many('&e;', n)}]]></a>",
    "references never closed": lambda n: f"{ENTITY}<a>{many('&e', n)}",
    "references to nothing": lambda n: f"<!DOCTYPE a [<!ENTITY e ''>]><a>{many('&e;', n)}</a>",
    "comments in the declarations": lambda n: f"<!DOCTYPE a [<!ENTITY e 'x'>{many('<!--', n)}",
    "literals never closed": lambda n: f"<!DOCTYPE a [<!ENTITY e 'x'>{many('<!ENTITY ', n)}",
    "references in text": lambda n: f"<!DOCTYPE a [{long_entity(n)}]><a>{many('&e;', n // 2)}</a>",
    "references in an attribute": lambda n: (
        f"<!DOCTYPE a [{long_entity(n)}]><a x='{many('&e;', n // 2)}'/>"
    ),
    "references in attributes": lambda n: (
        f"<!DOCTYPE a [{long_entity(n)}]><a>" + many('<b x="&e;"/>', n // 2) + "</a>"
    ),
    "references in a default": lambda n: (
        f"<!DOCTYPE a [{long_entity(n)}<!ATTLIST b x CDATA '{many('&e;', n // 2)}'>]><a/>"
    ),
    "references behind an entity that opens an instruction": lambda n: (
        f"<!DOCTYPE a [<!ENTITY o '<?'>{long_entity(n)}]><a>&o;{many('&e;', n // 2)}?></a>"
    ),
    "references behind an entity that opens a comment": lambda n: (
        f"<!DOCTYPE a [<!ENTITY o '<!--'>{long_entity(n)}]><a><!--&o;-->{many('&e;', n // 2)}<!-- --></a>"
    ),
    "references behind an entity with CDATA": lambda n: (
        f"<!DOCTYPE a [<!ENTITY o '<![CDATA[<!--]]>'>{long_entity(n)}]><a>&o;{many('&e;', n // 2)}</a>"
    ),
    "references in UTF-16": lambda n: f"<!DOCTYPE a [{long_entity(n)}]><a>{many('&e;', n // 2)}</a>",
    "references behind what only Python decodes": lambda n: (
        "<?xml version='1.0' encoding='raw_unicode_escape'?>"
        f"<!DOCTYPE a [{long_entity(n)}]><a>\\u003c!--{many('&e;', n // 2)}--\\u003e</a>"
    ),
    "defaults": lambda n: f"<!DOCTYPE a [{default(n)}]><a>{many('<b/>', n // 2)}</a>",
    "defaults of elements in an entity": lambda n: (
        f"<!DOCTYPE a [{default(n)}<!ENTITY e '{many('<b/>', n // 2)}'>]><a>&e;</a>"
    ),
    "defaults of elements in entities": lambda n: (
        f"<!DOCTYPE a [{default(n)}<!ENTITY d '<b/>'><!ENTITY e '{many('&d;', n // 2)}'>]><a>&e;</a>"
    ),
    "defaults behind what is not read": lambda n: (
        f"<!DOCTYPE a [<!ENTITY % p SYSTEM 'u'> %p; {default(n)}]><a>{many('<b/>', n // 2)}</a>"
    ),
    "defaults behind what is not declared": lambda n: (
        f"<!DOCTYPE a [%p; {default(n)}]><a>{many('<b/>', n // 2)}</a>"
    ),
    "defaults in a parameter entity": lambda n: (
        "<?xml version='1.0' standalone='yes'?>"
        f'<!DOCTYPE a [<!ENTITY % p "{default(n)}"> %p;]><a>{many("<b/>", n // 2)}</a>'
    ),
    "element types with defaults": lambda n: (
        "<!DOCTYPE a [" + numbered("<!ATTLIST b{} x CDATA ''>", n // 2) + f"]><a>{many('<b1/>', n // 2)}</a>"
    ),
    "attributes of an element type": lambda n: (
        f"<!DOCTYPE a [{numbered('<!ATTLIST b x{} CDATA #IMPLIED>', n // 2)}]><a>{many('<b/>', n // 2)}</a>"
    ),
    "parameter entities in a value": lambda n: (
        f"<!DOCTYPE a [<!ENTITY % q '{'v' * (n // 2)}'>"
        f"<!ENTITY % p \"<!ENTITY e '{many('&#37;q;', n // 2)}'>\"> %p;]><a/>"
    ),
    "parameter entities": lambda n: (
        f"<!DOCTYPE a [<!ENTITY % q '<!--{'v' * (n // 2)}-->'> {many('%q;', n // 2)}]><a/>"
    ),
    "parameter entities behind a comment": lambda n: (
        f"<!DOCTYPE a [<!ENTITY % q '<!--{'v' * 1_000}-->'><!ENTITY % r '{'&#37;q;' * 100}'>"
        f"<!--{'c' * (n // 2)}-->{many('%r;', n // 2)}]><a/>"
    ),
    "an entity of entities declared later": lambda n: (
        f"<!DOCTYPE a [<!ENTITY z '{numbered('&e{};              ', n // 2)}'>"
        + numbered("<!ENTITY e{} ''>    ", n // 2)
        + "]><a>&z;</a>"
    ),
    "a chain declared from its end": lambda n: (
        "<!DOCTYPE a [<!ENTITY e0 'v'>"
        + "".join(f"<!ENTITY e{i} '&e{i - 1};'>" for i in range(1, n // 22))
        + "]><a>&e40;</a>"
    ),
}  # fmt: skip
POPULATIONS = {
    "plain paths": ["//a"],
    "all kinds": ["//a", "//*[@x = 'v' or . = 'v']", "count(//a/..) * 1 > 3"],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("queries", POPULATIONS.values(), ids=POPULATIONS.keys())
def test_time_and_memory_grow_with_the_message(
    form: Callable[[int], str], queries: list[str], request: pytest.FixtureRequest
) -> None:
    with Matcher() as matcher:
        matcher.add_many(enumerate(queries))
        matcher.match("<a/>")

        def written(size: int) -> bytes:
            return form(size).encode("utf-16" if "UTF-16" in request.node.name else "utf-8")

        def took(size: int) -> float:
            message = written(size)
            return cpu_seconds(lambda: attempt(matcher, message))

        assert_linear(took, SIZES)
        for size in SIZES:
            message = written(size)
            assert peak(matcher, message) < 25e6 + 120 * len(message)


def attempt(matcher: Matcher, message: bytes) -> None:
    try:
        matcher.match(message)
    except MessageError as error:
        assert len(str(error)) < 500  # it does not quote the bomb


def peak(matcher: Matcher, message: bytes) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        attempt(matcher, message)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# -- what is counted, and where the limit is -----------------------------------------------------------------

LIMITS = Limits(entity_expansion=1_000)
SUBSETS = {
    "an entity": ("<!ENTITY e '{}'>", "<a>&e;</a>"),
    "an attribute": ("<!ENTITY e '{}'>", "<a x='&e;'/>"),
    "a reference of a reference": ("<!ENTITY e '{}'><!ENTITY f '&#38;e;'>", "<a>&f;</a>"),
    "a default": ("<!ATTLIST a x CDATA '{}'>", "<a/>"),
    "a default with a prefix": ("<!ATTLIST p:a x CDATA '{}' xmlns:p CDATA 'u'>", "<p:a/>"),
    "an entity in a default": ("<!ENTITY e '{}'><!ATTLIST a x CDATA '&e;'>", "<a/>"),
    "a default of an element in an entity": ("<!ATTLIST b x CDATA '{}'><!ENTITY e '<b/>'>", "<a>&e;</a>"),
    "one of an element with a character": ("<!ATTLIST b x CDATA '{}'><!ENTITY e '&#60;b/>'>", "<a>&e;</a>"),
    "an entity in a parameter entity": ('<!ENTITY % p "<!ENTITY e \'{}\'>"> %p;', "<a>&e;</a>"),
    "an entity with an instruction before": ("<!ENTITY o '<?o?>'><!ENTITY e '{}'>", "<a>&o;&e;</a>"),
    "an entity behind a comment": ("<!ENTITY e '{}'>", "<a><!-- ' --><b x='>'>&e;</b></a>"),
    "an entity behind CDATA": ("<!ENTITY e '{}'>", "<a><![CDATA[<!--]]>&e;</a>"),
}  # fmt: skip


@pytest.mark.parametrize(("subset", "body"), SUBSETS.values(), ids=SUBSETS.keys())
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_the_expansion_of_entities_is_counted(subset: str, body: str, encoding: str) -> None:
    matcher = Matcher(limits=LIMITS)
    matcher.add_many(enumerate(["//*", "count(//node()) + count(//@*) > 0"]))

    def message(size: int) -> bytes:
        return f"<!DOCTYPE a [\n{subset.replace('{}', 'v' * size)}]>\n{body}".encode(encoding)

    assert list(matcher.match(message(900))) == [0, 1]
    with pytest.raises(MessageError, match="the limit is 1,000") as caught:
        matcher.match(message(1_001))
    assert caught.value.line in (2, 3)


@pytest.mark.parametrize(
    "body",
    [
        "<a><!-- &e; --></a>",
        "<a><![CDATA[&e;]]></a>",
        "<a><?do &e;?></a>",
        "<!-- &e; <a> --><a/><!-- &e; -->",
        "<a x='&#38;e;'>&#38;e;</a>",
    ],
)
@pytest.mark.parametrize("doctype", ["<!DOCTYPE a SYSTEM 'u'>", "<!DOCTYPE a SYSTEM 'u' [<!ENTITY f '1'>]>"])
def test_text_that_looks_like_a_reference_is_not_counted(doctype: str, body: str) -> None:
    matcher = Matcher(limits=LIMITS)
    matcher.add("q", "//a")
    counted = f"<!DOCTYPE a [<!ENTITY e '{'v' * 2_000}'>]>"
    assert list(matcher.match(counted + body)) == ["q"]
    assert list(matcher.match(doctype + body)) == ["q"]  # nor is the entity missed


def test_a_long_entity_may_be_declared_if_it_is_not_used() -> None:
    matcher = Matcher()
    matcher.add("q", "//a")
    assert list(matcher.match(f"<!DOCTYPE a [<!ENTITY e '{'v' * 200_000}'>]><a/>")) == ["q"]


def test_the_place_is_where_the_limit_is_exceeded() -> None:
    matcher = Matcher(limits=LIMITS)
    matcher.add("q", "//a")
    doctype = f"<!DOCTYPE a [\n<!ENTITY e '{'v' * 600}'>]>"
    with pytest.raises(MessageError) as caught:
        matcher.match(f"{doctype}<a>\n&e;\n  <b x='&e;'/>\n&e;</a>")
    assert (caught.value.line, caught.value.column) == (4, 3)
    with pytest.raises(MessageError) as caught:
        matcher.match(f"<!--\n--> {doctype}<a>&e;<b>&e;</b></a>")
    assert (caught.value.line, caught.value.column) == (3, 626)
    with pytest.raises(MessageError) as caught:
        matcher.match(f"{doctype}<a><</a>")
    assert (caught.value.line, caught.value.column) == (2, 621)


@pytest.mark.parametrize(
    "subset", ["%p; <!ENTITY e 'v'>", "<!ENTITY % q '%p;'> %q; <!ATTLIST a x CDATA 'v'>"]
)
def test_declarations_after_an_undeclared_parameter_entity_are_refused(subset: str) -> None:
    matcher = Matcher()
    matcher.add("q", "//a")
    with pytest.raises(MessageError):
        matcher.match(f"<!DOCTYPE a SYSTEM 'u' [{subset}]><a/>")


@pytest.mark.parametrize("standalone", ["", "<?xml version='1.0' standalone='yes'?>"])
@pytest.mark.parametrize(
    "subset",
    [
        "<!ENTITY % p SYSTEM 'u'> %p; <!ATTLIST a x CDATA 'v'><!ENTITY e 'w'>",
        "<!ENTITY % p \"<!ATTLIST a x CDATA 'v'>\"> %p; <!ENTITY e 'w'>",
    ],
)
def test_expat_and_lxml_take_external_entities_for_empty(subset: str, standalone: str) -> None:
    """Both take what is external for empty, and go on with the declarations behind it."""
    matcher = Matcher()
    matcher.add_many(
        enumerate(["/a[@x = 'v']", "count(//a[@x = 'v']) * 1 = 1", "/a[. = 'w']", "string(/a) = 'w'"])
    )
    message = f"{standalone}<!DOCTYPE a [{subset}]><a>&e;</a>"
    assert list(matcher.match(message)) == [0, 1, 2, 3]
    assert matcher.select(message)[0][0].value == "w"


def test_nothing_is_counted_where_nothing_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body of an ordinary message with an external subset is read once."""
    bodies: list[object] = []
    monkeypatch.setattr(doctype_limits, "_Body", lambda *parts: bodies.append(parts))
    matcher = Matcher()
    matcher.add("q", "//a")
    assert list(matcher.match("<!DOCTYPE a SYSTEM 'u'><a>&amp;&#65;&lt;</a>")) == ["q"]
    assert list(matcher.match("<!DOCTYPE a [<!ELEMENT a ANY>]><a>&amp;</a>")) == ["q"]
    assert bodies == []
