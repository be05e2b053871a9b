"""Bodies in all formats: the same bytes come back, and what is no body of its format is refused."""

from __future__ import annotations

import zlib

import msgpack  # type: ignore[import-untyped, unused-ignore]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sapwood.mesh.wire.bodies.body_format import (
    BodyError,
    BodyFormat,
    EncodedBody,
    decode_body,
    encode_body,
)
from sapwood.mesh.wire.bodies.element_stream import ElementStreamError, decode_elements
from sapwood.mesh.wire.bodies.wire_dictionary import (
    DictionaryError,
    WireDictionary,
    decode_dictionary,
    train_dictionary,
)
from tests.support import shared_data

SAMPLES = [
    b'<?xml version="1.0"?>\n<order id="%d" currency="CHF">\n <item sku="A%d"/>\n <total>%d</total>\n</order>'
    % (i, i % 7, 3 * i)
    for i in range(200)
]
DICTIONARY = train_dictionary(SAMPLES)
UNUSUAL = [
    b"",
    b"<a/>",
    b"no mark-up at all",
    "<?xml version='1.0' encoding='utf-16'?><ä ö=\"ü\">ß</ä>".encode("utf-16"),
    b'\xef\xbb\xbf<order id="1">with a byte order mark</order>\r\n',
    b"<!DOCTYPE order [<!ENTITY e '<b>'>]><order id='single'  currency = \"x\" >&e;</order >",
    b'<order><![CDATA[<item sku="A1"/></order>]]><!-- <item> --><?pi <item>?></order>',
    b"<order><item></order></item>",  # not well-formed, which is not for the format to say
    b'<a b="<"><c d="1"e="2"></c></a>',
    b"</order>",
    bytes(range(256)),
]

markup = st.lists(
    st.sampled_from(
        [
            b"<order>",
            b"</order>",
            b'<item sku="A1"/>',
            b"<a b='c'>",
            b"</a>",
            b"text",
            b"&lt;",
            b"<!--",
            b"-->",
            b"<",
        ]
    ),
    max_size=12,
).map(b"".join)


@pytest.mark.parametrize("format", BodyFormat)
@pytest.mark.parametrize("text", [*UNUSUAL, *SAMPLES[:3]])
def test_the_same_bytes_come_back(format: BodyFormat, text: bytes) -> None:
    body = encode_body(text, format, DICTIONARY)
    assert decode_body(body, DICTIONARY) == text
    assert (body.dictionary == DICTIONARY.identity) == format.needs_dictionary


@given(markup | st.binary(max_size=200), st.sampled_from(BodyFormat))
@example(b'<a b="1" c="2"/>', BodyFormat.ELEMENTS)
def test_the_same_bytes_come_back_of_anything(text: bytes, format: BodyFormat) -> None:
    assert decode_body(encode_body(text, format, DICTIONARY), DICTIONARY) == text


@pytest.mark.slow
@pytest.mark.parametrize("format", BodyFormat)
def test_the_same_bytes_come_back_of_real_files(format: BodyFormat) -> None:
    files = [path for path in sorted(shared_data.folder(".").rglob("*")) if path.is_file()]
    assert len(files) > 500
    for path in files:
        text = path.read_bytes()
        assert decode_body(encode_body(text, format, DICTIONARY), DICTIONARY) == text, path


@given(st.binary(max_size=80), st.sampled_from([f for f in BodyFormat if f is not BodyFormat.TEXT]))
def test_other_bytes_are_refused_or_decoded(data: bytes, format: BodyFormat) -> None:
    try:
        assert isinstance(decode_body(EncodedBody(format, None, data), DICTIONARY), bytes)
    except BodyError as error:
        assert format.label in str(error)


def test_what_was_changed_on_its_way_is_refused() -> None:
    body = encode_body(SAMPLES[0], BodyFormat.TEXT_ZSTD_TRAINED, DICTIONARY)
    for at in range(len(body.data)):
        changed = bytearray(body.data)
        changed[at] ^= 0x10
        try:
            assert decode_body(body._replace(data=bytes(changed)), DICTIONARY) == SAMPLES[0]
        except BodyError:
            continue


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapwood.mesh.wire.bodies.body_format.MOST_BYTES", 1_000)
    for format in (BodyFormat.TEXT_ZLIB, BodyFormat.TEXT_ZSTD, BodyFormat.TEXT_ZSTD_TRAINED):
        body = encode_body(b"<a/>" * 1_000, format, DICTIONARY)
        assert len(body.data) < 1_000
        with pytest.raises(BodyError):
            decode_body(body, DICTIONARY)


def test_elements_that_are_a_bomb_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = WireDictionary([b"n" * 1_000])
    with pytest.raises(ElementStreamError, match="more than 10,000 bytes"):
        decode_elements(msgpack.packb([2] * 100), known.names, 10_000)
    nested = zlib.compress(msgpack.packb([[]] * 100))
    with pytest.raises(BodyError, match="neither a number nor bytes"):
        decode_body(EncodedBody(BodyFormat.ELEMENTS_ZLIB, None, nested))


def test_a_dictionary_of_long_names_can_be_read_by_others() -> None:
    samples = [
        b"<a>%b</a>" % b"".join(b"<%d-%b/>" % (i * 50 + j, b"n" * 900) for j in range(50)) for i in range(40)
    ]
    samples = [sample.replace(b"<", b"<n") for sample in samples]
    dictionary = train_dictionary(samples, [(-1, "p" * 900)] * 2_000)
    assert decode_dictionary(dictionary.encoded).identity == dictionary.identity


def test_another_dictionary_does_not_give_other_text() -> None:
    body = encode_body(SAMPLES[5], BodyFormat.TEXT_ZSTD_TRAINED, DICTIONARY)
    other = train_dictionary([b"<news><title>something else %d</title></news>" % i for i in range(100)])
    with pytest.raises(BodyError):
        decode_body(body, other)


def test_dictionaries_are_named_by_their_content() -> None:
    again = decode_dictionary(DICTIONARY.encoded)
    assert again.identity == DICTIONARY.identity
    assert (again.names, again.paths, again.trained) == (
        DICTIONARY.names,
        DICTIONARY.paths,
        DICTIONARY.trained,
    )
    assert (
        WireDictionary(DICTIONARY.names, ((-1, "order"),), DICTIONARY.trained).identity != DICTIONARY.identity
    )
    assert DICTIONARY.names[:2] == (b"currency", b"id")


def test_few_samples_make_a_dictionary_too() -> None:
    dictionary = train_dictionary(SAMPLES[:2])
    body = encode_body(SAMPLES[3], BodyFormat.TEXT_ZSTD_TRAINED, dictionary)
    assert decode_body(body, dictionary) == SAMPLES[3]
    assert len(body.data) < len(SAMPLES[3]) // 2


@given(st.binary(max_size=60))
def test_other_bytes_are_no_dictionary(data: bytes) -> None:
    with pytest.raises(DictionaryError):
        decode_dictionary(data)
