"""The records of a file: none lost, doubled or cut, whatever the file looks like; lxml decides."""

from __future__ import annotations

import io
import pickle
import tracemalloc
from itertools import pairwise
from typing import BinaryIO, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from sapwood import Matcher
from sapwood.errors import RecordError
from sapwood.records import Record, RecordScanner, message, ranges

BUFFERS = (1, 2, 3, 5, 7, 11, 16, 31, 64, 1 << 20)


def scan(element: str, data: bytes, buffer: int = 1 << 20) -> list[Record]:
    return list(RecordScanner(element, io.BytesIO(data), buffer=buffer))


def bodies(element: str, data: bytes, buffer: int = 1 << 20) -> list[bytes]:
    return [data[record.start : record.end] for record in scan(element, data, buffer)]


def messages(element: str, data: bytes) -> list[bytes]:
    return [message(record.context, data[record.start : record.end]) for record in scan(element, data)]


# -- against lxml --------------------------------------------------------------------------------------


def parsed(data: bytes) -> etree._Element:
    return etree.fromstring(data, etree.XMLParser(resolve_entities=True, no_network=True, strip_cdata=False))


def canonical(element: etree._Element) -> bytes:
    """The element alone, with the namespaces it uses, its attributes in order, and its entities expanded."""
    element.tail = None
    return etree.tostring(element, method="c14n", exclusive=True, with_comments=True)


def outermost(element: str, data: bytes) -> list[bytes]:
    """Canonical forms of the records, found in the tree of the whole file."""
    found: list[etree._Element] = []

    def walk(node: etree._Element) -> None:
        name = etree.QName(node).localname
        if (f"{node.prefix}:{name}" if node.prefix else name) == element:
            found.append(node)
        else:
            for child in node.iterchildren("*"):  # no comments
                walk(child)

    walk(parsed(data))
    return [canonical(node) for node in found]


def check(element: str, data: bytes, buffers: tuple[int, ...] = BUFFERS) -> None:
    records = scan(element, data)
    assert all(record.complete for record in records)
    made = [message(record.context, data[record.start : record.end]) for record in records]
    assert [canonical(parsed(text)) for text in made] == outermost(element, data)
    matcher = Matcher()
    matcher.add("all", "//*")
    assert all("all" in matcher.match(text) for text in made)
    for buffer in buffers:
        assert scan(element, data, buffer) == records, buffer


# -- hostile documents ---------------------------------------------------------------------------------

MARKUP = ("<{r}>", "</{r}>", "<{r}/>", "{r}", "-", "->", "]]", "]", "?", ">", "/>", "<!-")
NOISE = (*MARKUP, "'", '"', "&amp;", "é", " ")


def noise(name: str, without: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Text that looks like markup, except for what would end it."""
    text = st.lists(st.sampled_from(NOISE), max_size=6).map(lambda parts: "".join(parts).format(r=name))
    return text.filter(lambda t: not any(bad in t for bad in without))


def hidden(name: str) -> st.SearchStrategy[str]:
    return st.one_of(
        noise(name, ("--",)).filter(lambda t: not t.endswith("-")).map("<!--{}-->".format),
        noise(name, ("]]>",)).map("<![CDATA[{}]]>".format),
        noise(name, ("?>",)).map("<?pi {}?>".format),
    )


def text(entities: bool) -> st.SearchStrategy[str]:
    pieces = ["x", " ", "\n", "]]&gt;", "é", ">", "/>", "'", '"', "&lt;", "&#60;r>"]
    return st.sampled_from(pieces + ["&e;", "&m;"] * entities)


def attributes(name: str) -> st.SearchStrategy[str]:
    double = noise(name, ("<", '"')).map('"{}"'.format)
    single = noise(name, ("<", "'")).map("'{}'".format)
    declaration = st.sampled_from(['"urn:1"', "'urn:2'", '"urn:\'"', "'urn:/'"])
    value = {
        "a": double | single,
        "b": double | single,
        "p:c": double,
        "xmlns": declaration | st.just('""'),
        "xmlns:p": declaration,
        "xmlns:q": declaration,
    }
    chosen = st.fixed_dictionaries({}, optional=value)
    spaces = st.sampled_from([" ", "\n", "\t ", "  "])
    return st.builds(
        lambda chosen, space, around: "".join(f"{space}{k}{around}={around}{v}" for k, v in chosen.items()),
        chosen,
        spaces,
        st.sampled_from(["", " "]),
    )


def element(name: str, inner: st.SearchStrategy[str], record: str) -> st.SearchStrategy[str]:
    made = attributes(record)
    end = st.sampled_from(["", " ", "\n"])
    return st.one_of(
        st.builds(lambda a, s: f"<{name}{a}{s}/>", made, end),
        st.builds(lambda a, i, s, e: f"<{name}{a}{s}>{i}</{name}{e}>", made, inner, end, end),
    )


def content(record: str, entities: bool) -> st.SearchStrategy[str]:
    names = (record, record, record, "w", "p:w", record + "s", record + "-x", record + ".", "q:" + record)
    leaf = text(entities) | hidden(record)

    def nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        known = [name for name in names if name.count(":") < 2]
        elements = st.sampled_from(known).flatmap(lambda name: element(name, inner, record))
        return st.lists(elements | leaf, min_size=1, max_size=4).map("".join)

    return nest(st.recursive(leaf, nest, max_leaves=6))


DOCTYPES = (
    '<!DOCTYPE root [<!ENTITY e "&#233;]>"><!ENTITY m "<w>\'&e;</w>">]>',
    """<!DOCTYPE root SYSTEM 'b"[>' [ <!-- ' ]> <r> --> <?pi ]> " <r>?>
    <!ENTITY e '"<!-- ]]> -->'> <!ENTITY m "<r2>&e;</r2>"> <!ENTITY unused "<r>"> ] >""",
    """<!DOCTYPE root [<!ENTITY e "e"> <!ENTITY m "m"> <!ELEMENT r ANY>
    <!ATTLIST w xmlns:q CDATA "urn:default" d CDATA "<![INCLUDE[" >
    <!ATTLIST r xmlns:q CDATA #FIXED "urn:own">]>""".replace('"<![INCLUDE["', '"[INCLUDE["'),
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, bytes]:
    record = draw(st.sampled_from(["r", "p:r", "rec.ord-é"]))
    encoding = draw(st.sampled_from(["", "utf-8", "iso-8859-1", "windows-1252"]))
    doctype = draw(st.sampled_from(["", *DOCTYPES]))
    mark = draw(st.booleans()) and encoding in ("", "utf-8")
    standalone = draw(st.sampled_from(["", " standalone='yes'"]))
    declaration = f'<?xml version="1.0" encoding="{encoding}"{standalone}?>' if encoding else ""
    before = draw(st.sampled_from(["", "\n", "<!-- <r> -->", "<?xml-stylesheet <r>?>\n"]))
    root = draw(st.sampled_from(["root", "root", record]))
    inner = "".join(draw(st.lists(content(record, bool(doctype)), min_size=1, max_size=5)))
    space = ' xmlns:p="urn:p" xmlns:q="urn:q"' + draw(st.sampled_from(["", " xmlns='urn:d' a='>'"]))
    after = draw(st.sampled_from(["", "\n<!-- <r> -->\n"]))
    whole = declaration + before + doctype + f"<{root}{space}>{inner}</{root}>" + after
    return record, b"\xef\xbb\xbf" * mark + whole.encode(encoding or "utf-8")


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents())
def test_records_are_those_of_the_tree(document: tuple[str, bytes]) -> None:
    check(*document)


SHARDS = [*"<>/!?-[]'\"=ar ", "<r", "</r", "<r>", "</r>", "<r/>", "<!--", "-->", "<![CDATA[", "xmlns:p='u'"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(SHARDS)))
def test_malformed_data_gives_records_or_a_record_error(pieces: list[str]) -> None:
    data = "".join(pieces).encode()
    for buffer in (1, 4, 1 << 20):
        try:
            records = scan("r", data, buffer)
        except RecordError as error:
            assert error.offset is not None and data[error.offset : error.offset + 1] == b"<"
        else:
            assert all(record.complete for record in records[:-1])
            assert all(a.end <= b.start for a, b in pairwise(records))


SAMPLE = b"""\xef\xbb\xbf<?xml version='1.0' encoding="UTF-8"?>
<!DOCTYPE all [<!ENTITY e "<r>]>"> <!-- ]> ' --> ]>
<all xmlns="urn:1" xmlns:p='urn:2'> <r a="/>">1</r><r/><o><r b='>'>2<r>3</r><r/><!-- </r> --></r ></o>
<![CDATA[<r>]]><r><![CDATA[</r>]]></r><?pi <r> ?><p:w xmlns:p="urn:3"><r><?pi </r>?></r></p:w><rs><r\n/></rs>
<o>text</o><o/><r>4</r>\n<r>5</r> text <r>6</r></all>"""


def test_a_file_cut_at_any_byte_loses_nothing_before_the_cut() -> None:
    whole = scan("r", SAMPLE)
    assert len(whole) == 9
    for cut in range(len(SAMPLE)):
        for buffer in (7, 1 << 20):
            *before, last = [*scan("r", SAMPLE[:cut], buffer), None]
            if before and not before[-1].complete:
                last = before.pop()
                assert last.end == cut and last.start == whole[len(before)].start
            assert before == [record for record in whole if record.end <= cut]
            # A tag is a record's once its name is known to have ended.
            inside = [record for record in whole if record.start + 2 < cut < record.end]
            assert (last is not None) == bool(inside)


def test_the_sample_is_what_the_tree_says() -> None:
    check("r", SAMPLE.replace(b'<!ENTITY e "<r>]>">', b""), tuple(range(1, 80)))


# -- what goes with a record ---------------------------------------------------------------------------


def test_a_message_has_the_prolog_and_the_namespaces_in_scope() -> None:
    data = (
        b"<?xml version='1.0' encoding='iso-8859-1' standalone='yes'?>\n<!-- c -->"
        b'<!DOCTYPE all SYSTEM "all.dtd" [<!ENTITY e "\xe9">]>'
        b"<all xmlns='urn:1' xmlns:p=\"urn:2\"><x xmlns=''><r a='xmlns:p='/></x>"
        b"<r xmlns:p='urn:3'>&e;</r></all>"
    )
    prolog = (
        b"<?xml version='1.0' encoding='iso-8859-1' standalone='yes'?>"
        b'<!DOCTYPE r SYSTEM "all.dtd" [<!ENTITY e "\xe9">]>'
    )
    assert messages("r", data) == [
        prolog + b"<r xmlns:p=\"urn:2\" a='xmlns:p='/>",
        prolog + b"<r xmlns='urn:1' xmlns:p='urn:3'>&e;</r>",
    ]
    assert messages("r", b"<a><r>x</r></a>") == [b"<r>x</r>"]


def test_equal_contexts_are_one_and_end_with_their_element() -> None:
    data = b"<a xmlns='u'><b xmlns:p='v'><r/></b><r/><b xmlns:p='v'><r/></b><r/></a><r/>"
    contexts = [record.context for record in scan("r", data)]
    assert contexts[0] is contexts[2] and contexts[1] is contexts[3]
    assert [len(context.namespaces) for context in contexts] == [2, 1, 2, 1, 0]


def test_an_element_around_a_record_is_not_taken_to_end_with_one_of_its_name_within_it() -> None:
    check(
        "r",
        b"<a><w xmlns='urn:u'><w>1</w><r>2</r></w><w xmlns='urn:v'><wx/><w/>" + b" " * 50 + b"<r/></w></a>",
    )


def test_namespaces_that_the_document_type_declares_by_default() -> None:
    data = (
        b'<!DOCTYPE a [<!ATTLIST a xmlns CDATA "urn:&amp;a" xmlns:p CDATA "urn:p">'
        b' <!ATTLIST r xmlns:p CDATA "urn:r">]><a><r p:x="1"/><b xmlns="urn:b"><r>1</r></b></a>'
    )
    check("r", data)
    first, second = messages("r", data)
    assert first.endswith(b'<r xmlns="urn:&amp;a" p:x="1"/>') and second.endswith(b'<r xmlns="urn:b">1</r>')


def test_entities_of_the_file_serve_its_records() -> None:
    data = b'<!DOCTYPE a [<!ENTITY ns "urn:n"><!ENTITY e "<i>7</i>">]><a xmlns:n="&ns;"><n:r>&e;</n:r></a>'
    check("n:r", data)
    matcher = Matcher(namespaces={"n": "urn:n"})
    matcher.add("seven", "/n:r/i[. = 7]")
    assert "seven" in matcher.match(messages("n:r", data)[0])


def test_entities_that_a_record_does_not_use_do_not_count_against_it() -> None:
    big = "x" * 60_000
    data = f'<!DOCTYPE a [<!ENTITY e "{big}"><!ENTITY f "&e;&e;&e;">]><a><r>1</r></a>'.encode()
    assert Matcher().match(messages("r", data)[0]) is not None


def test_several_documents_in_one_file() -> None:
    data = (
        b"<?xml version='1.0'?><!DOCTYPE r [<!ENTITY e '1'>]><r>&e;</r>\n"
        b"<?xml version='1.0' encoding='latin1'?>\n<all xmlns='u'><r>2</r>"
        b"<?xml version='1.0'?><r>3</r>"
    )
    for buffer in BUFFERS:
        assert bodies("r", data, buffer) == [b"<r>&e;</r>", b"<r>2</r>", b"<r>3</r>"]
    assert messages("r", data) == [
        b"<?xml version='1.0'?><!DOCTYPE r [<!ENTITY e '1'>]><r>&e;</r>",
        b"<?xml version='1.0' encoding='latin1'?><r xmlns='u'>2</r>",
        b"<?xml version='1.0'?><r>3</r>",
    ]


# -- files that are not as they should be --------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"no markup at all", []),
        (b"<a><b/></a>", []),
        (b"text & < text <3 <r>1</r> </b></c> <r>2</r>", [b"<r>1</r>", b"<r>2</r>"]),
        (b"</r></a><r/></r><r/>", [b"<r/>", b"<r/>"]),
        (b"<a><b><c></a><r/></a><r/>", [b"<r/>", b"<r/>"]),
        (b"<a><r/><b><c", [b"<r/>"]),
        (b"<r/><!-- <r/>", [b"<r/>"]),
        (b"<!DOCTYPE a [ <!-- <r/> ", []),
        (b"<r/><!ELEMENT r ANY><r/>", [b"<r/>", b"<r/>"]),
        (b"<a>\x00</a><r/>", [b"<r/>"]),
    ],
)
def test_lenient_where_it_is_clear(data: bytes, found: list[bytes]) -> None:
    for buffer in BUFFERS:
        assert bodies("r", data, buffer) == found


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        ("<a><r/></a>".encode("utf-16"), 0, "UTF-16"),
        ("<a><r/></a>".encode("utf-16-be"), 0, "UTF-16"),
        ("<a><r/></a>".encode("utf-32"), 0, "UTF-32"),
        ("<?xml version='1.0'?><r/>".encode("cp037"), 0, "IBM037"),
        (b"<?xml version='1.0' encoding='shift_jis'?><r/>", 0, "shift_jis"),
        (b"<?xml version='1.0' encoding='UTF-16'?><r/>", 0, "UTF-16"),
        (b"<?xml version='1.0' encoding='nonsense'?><r/>", 0, "is unknown"),
        (b"<?xml version='1.0' encoding='rot13'?><r/>", 0, "is unknown"),
        (b"<?xml version='1.0' encoding='unicode_escape'?><r/>", 0, "unicode_escape"),
        (b"<a><r t='<'/><r/></a>", 3, "'<' in it"),
        (b"<a><b <r/></a>", 3, "'<' in it"),
        (b"<a>" * 20_000, 30_003, "nested more than"),
    ],
)
def test_refused_where_it_is_not(data: bytes, offset: int, reason: str) -> None:
    for buffer in (3, 1 << 20):
        with pytest.raises(RecordError, match=reason) as raised:
            scan("r", data, buffer)
        assert raised.value.offset == offset and raised.value.hint
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize("name", ["", "a b", "{urn:1}r", "<r>", "1r", "r/", "*"])
def test_a_name_that_no_element_has(name: str) -> None:
    with pytest.raises(RecordError, match="is not the name of an element"):
        RecordScanner(name, io.BytesIO())


def test_a_name_is_that_which_is_written() -> None:
    data = b"<a xmlns:p='u'><p:r/><r/><rs/><r.x/><R/><p:r>1</p:r></a>"
    assert bodies("p:r", data) == [b"<p:r/>", b"<p:r>1</p:r>"]
    assert bodies("r", data) == [b"<r/>"]
    assert bodies("a", data) == [data]
    with pytest.raises(RecordError, match="cannot be written"):
        scan("ж", b"<?xml version='1.0' encoding='latin1'?><a/>")


def test_an_encoding_of_several_bytes_that_leaves_ascii_alone() -> None:
    data = "<?xml version='1.0' encoding='euc-jp'?><日><本>語</本></日>".encode("euc-jp")
    assert [body.decode("euc-jp") for body in bodies("本", data)] == ["<本>語</本>"]


# -- large files ---------------------------------------------------------------------------------------


class Pieces(io.RawIOBase):
    """A file that is made up while it is read."""

    def __init__(self, *pieces: tuple[bytes, int]) -> None:
        self._pieces = iter([piece for piece, count in pieces for _ in range(count)])

    def read(self, size: int = -1, /) -> bytes:
        return next(self._pieces, b"")


FILLER = b"<t a='1'>some text</t>\n" * 4000  # 92 kB


@pytest.mark.parametrize(
    ("opening", "filler", "closing", "count"),
    [
        (b"<r>", FILLER, b"</r>", 3),
        (b"<!--", FILLER + b"<r/><r>", b"-->", 2),
        (b"<r><!--", FILLER + b"<r>", b"--></r>", 3),
        (b"<r><![CDATA[", FILLER + b"</r>", b"]]></r>", 3),
        (b"<?pi ", FILLER + b"<r/>", b"?>", 2),
        (b"<o>", b"<t>" + FILLER[:4600] + b"</t>", b"</o>", 2),
        (b"", b"x" * 90_000, b"", 2),
    ],
)
def test_memory_does_not_grow_with_what_is_long(
    opening: bytes, filler: bytes, closing: bytes, count: int
) -> None:
    file = Pieces((b"<a><r>1</r>" + opening, 1), (filler, 550), (closing + b"<r>2</r></a>", 1))
    tracemalloc.start()
    try:
        records = list(RecordScanner("r", cast(BinaryIO, file), buffer=1 << 16))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(records) == count and all(record.complete for record in records)
    assert records[-1].end - records[-1].start == len(b"<r>2</r>")
    assert records[-1].start == len(b"<a><r>1</r>" + opening + closing) + 550 * len(filler)
    assert peak < 3_000_000


def test_memory_does_not_grow_with_the_number_of_contexts() -> None:
    made = b"".join(b"<w xmlns='urn:%d'><r/></w>" % number for number in range(5000))
    seen = {record.context for record in scan("r", b"<a>" + made)}
    assert len(seen) == 5000


def test_a_tag_without_end_is_given_up() -> None:
    file = io.BytesIO(b"<a><b c='" + bytes(40 << 20))
    with pytest.raises(RecordError, match="a tag of more than") as raised:
        list(RecordScanner("r", file))
    assert raised.value.offset == 3


# -- parcels -------------------------------------------------------------------------------------------


def test_ranges_are_all_the_records_in_parcels() -> None:
    small = b"".join(b"<r>%d</r>\n" % number for number in range(1000))
    data = b"<a>" + small + b"<r>" + b"x" * 5000 + b"</r>" + small + b"<b xmlns='u'>" + small + b"</b><r>cut"
    records = scan("r", data)
    made = list(ranges(records, max_bytes=1000, max_records=50))
    places = [(int(s), int(e), p.context) for p in made for s, e in zip(p.starts, p.ends, strict=True)]
    assert places == [record[:3] for record in records]
    assert all(p.end - p.start <= 1000 or len(p) == 1 for p in made)
    assert max(map(len, made)) == 50 and max(p.end - p.start for p in made) == 5007
    assert [p.complete for p in made] == [True] * (len(made) - 1) + [False]
    read = [body for p in pickle.loads(pickle.dumps(made)) for body in p.messages(io.BytesIO(data))]
    assert read == [message(r.context, data[r.start : r.end]) for r in records]


def test_no_records_make_no_ranges() -> None:
    assert list(ranges(scan("r", b"<a/>"))) == []
