"""The two readers of the compiled kernel report what pyexpat does; the tokeniser gives up where it must."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import pytest

from tests.support import shared_data
from tests.support.cases.reader_messages import READ, REFUSED, UNUSUAL, XML
from tests.support.compiled_kernel import compiled_kernel
from tests.support.growth import cpu_seconds
from tests.support.oracles.expat_events import (
    GAVE_UP,
    HAS_DOCTYPE,
    LIMIT_EXCEEDED,
    NOT_WELL_FORMED,
    UNKNOWN_ENCODING,
    ReaderLimits,
    ReaderName,
    assert_alike,
    expat_events,
    read_events,
)
from tests.support.requirements import SANITIZED

kernel = compiled_kernel()
READERS: list[ReaderName] = ["tokenizer", "expat"]


def encoded(message: str | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.encode("utf-8", "surrogatepass")


# -- what is read and what is not ------------------------------------------------------------------------


@pytest.mark.parametrize("message", READ.values(), ids=READ.keys())
def test_both_readers_report_what_pyexpat_does(message: str) -> None:
    wanted = expat_events(encoded(message))
    assert isinstance(wanted, list)
    for reader in READERS:
        assert read_events(encoded(message), reader) == wanted


@pytest.mark.parametrize("message", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_tokenizer_leaves_to_expat_what_is_unusual(message: str | bytes) -> None:
    wanted = expat_events(encoded(message))
    assert isinstance(wanted, list)
    assert read_events(encoded(message), "expat") == wanted
    assert read_events(encoded(message), "tokenizer") == GAVE_UP


@pytest.mark.parametrize("message", REFUSED.values(), ids=REFUSED.keys())
def test_both_readers_refuse_what_pyexpat_does(message: str | bytes) -> None:
    assert expat_events(encoded(message)) == NOT_WELL_FORMED
    assert read_events(encoded(message), "expat") == NOT_WELL_FORMED
    assert read_events(encoded(message), "tokenizer") == GAVE_UP


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "utf-16"])
@pytest.mark.parametrize(
    "prolog", ["", " \n", "<!-- <a> --> ", "<?p <!DOCTYPE ?>", "<?xml version='1.0'?>\n<!--c--><?p?>"]
)
def test_a_doctype_is_told(prolog: str, encoding: str) -> None:
    bomb = "<!DOCTYPE a [<!ENTITY e 'eeeeeeeeee'><!ENTITY f '&e;&e;&e;&e;&e;&e;'>]><a>&f;&f;</a>"
    message = (prolog + bomb).encode(encoding)
    assert expat_events(message) == HAS_DOCTYPE
    assert read_events(message, "expat") == HAS_DOCTYPE
    assert read_events(message, "tokenizer") == GAVE_UP


@pytest.mark.parametrize("message", ["<a><!-- <!DOCTYPE b> --></a>", "<!-- <!DOCTYPE b> --><a/>"])
def test_what_looks_like_a_doctype_is_none(message: str) -> None:
    assert assert_alike(message.encode())


@pytest.mark.parametrize("encoding", ["windows-1252", "utf8", "koi8-r", "none-such"])
def test_an_encoding_that_expat_does_not_know_is_told(encoding: str) -> None:
    message = f"<?xml version='1.0' encoding='{encoding}'?><a/>".encode()
    assert read_events(message, "expat") == UNKNOWN_ENCODING
    assert read_events(message, "tokenizer") == GAVE_UP
    assert read_events(b"<a/>", "expat", encoding=encoding) == UNKNOWN_ENCODING


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1", "utf-16", "us-ascii"])
def test_an_encoding_overrides_what_is_declared(encoding: str) -> None:
    message = "<?xml version='1.0' encoding='windows-1252'?><a b='é'>é</a>".encode(encoding, "replace")
    wanted = expat_events(message, encoding)
    assert isinstance(wanted, list)
    assert read_events(message, "expat", encoding=encoding) == wanted


# -- limits ----------------------------------------------------------------------------------------------

AT_LIMIT = [
    ("<a><b><c/></b></a>", ReaderLimits(depth=3), ReaderLimits(depth=2)),
    ("<a><b><c></c></b></a>", ReaderLimits(depth=3), ReaderLimits(depth=2)),
    ("<a/>", ReaderLimits(depth=1), ReaderLimits(depth=0)),
    ("<a b='' c='' xmlns:d='u'/>", ReaderLimits(attributes=2), ReaderLimits(attributes=1)),
    ("<a><b c=''/></a>", ReaderLimits(attributes=1), ReaderLimits(attributes=0)),
    ("<abc/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<äöü/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<a 名前名=''/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<p:a xmlns:p='uri'/>", ReaderLimits(name_length=5), ReaderLimits(name_length=4)),
    ("<a xmlns='uri'/>", ReaderLimits(name_length=5), ReaderLimits(name_length=4)),
    ("<a xmlns:p='uri' p:b=''/>", ReaderLimits(name_length=5), ReaderLimits(name_length=4)),
    ("<a xmlns:p='üri'/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<a xmlns:prefix='u'/>", ReaderLimits(name_length=6), ReaderLimits(name_length=5)),
    ("<a><b xmlns='ü&#252;&#xfc;'/></a>", ReaderLimits(name_length=5), ReaderLimits(name_length=4)),
    ("<xml/>", ReaderLimits(name_length=3), ReaderLimits(name_length=2)),
    ("<a xml:b=''/>", ReaderLimits(name_length=38), ReaderLimits(name_length=37)),
    (f"<a xmlns:xml='{XML}'/>", ReaderLimits(name_length=36), ReaderLimits(name_length=35)),
    (f"<xml><a xmlns:xml='{XML}'/></xml>", ReaderLimits(name_length=36), ReaderLimits(name_length=35)),
]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("message", "enough", "too_little"), AT_LIMIT)
def test_limits_hold_exactly(
    message: str, enough: ReaderLimits, too_little: ReaderLimits, reader: ReaderName
) -> None:
    data = message.encode()
    for _ in range(2):  # names that are kept from the message before count, too
        assert read_events(data, reader, enough) == expat_events(data)
        assert read_events(data, reader, too_little) == LIMIT_EXCEEDED


def test_handlers_are_not_called_after_a_limit_and_reading_ends_soon() -> None:
    message = b"<a>" * 600 + b"<b/>" * 3_000_000
    took = {reader: cpu_seconds(lambda r=reader: read_events(message, r)) for reader in READERS}  # type: ignore[misc]
    assert max(took.values()) < 0.2, took
    assert read_events(message, "expat") == LIMIT_EXCEEDED


# -- every byte and every character ----------------------------------------------------------------------

HOLES = [
    "<a>~</a>", "<a>x~</a>", "<a>x~y</a>", "<a>plain text of many bytes~plain text of many bytes</a>",
    "<a>]~</a>", "<a>]]~</a>", "<a>&~;</a>", "<a>&#~;</a>", "<a>&#x~;</a>", "<a>&#6~;</a>", "<a>&lt~</a>",
    "<a b='~'/>", "<a b='x~y'/>", '<a b="~"/>', '<a b="a value of more than twenty bytes~"/>', "<a b=~'1'/>",
    "<a b~='1'/>", "<a b='1'~/>", "<a b='1'~c='2'/>", "<a ~b='1'/>", "<a ~='1'/>", "<a~/>", "<~/>", "<~a/>",
    "<a/~>", "<a/>~", "~<a/>", "<a></a~>", "<a></~a>", "<a><~/a></a>", "<a><!~-- --></a>", "<a><!--~--></a>",
    "<a><!-- -~-></a>", "<a><!-- --~></a>", "<a><!-- a comment of many bytes ~--></a>", "<a><?~?></a>",
    "<a><?p~?></a>", "<a><?p ~?></a>", "<a><?p ?~></a>", "<a><![CDATA[~]]></a>", "<a><![CDATA[]~]></a>",
    "<a><![CDATA[]]~></a>", "<a><![CDATA[many bytes, more than sixteen~]]></a>", "<a><![CDATA~[]]></a>",
    "<?xml~version='1.0'?><a/>", "<?xml version~='1.0'?><a/>", "<?xml version='1.~'?><a/>",
    "<?xml version='1.0'~?><a/>", "<?xml version='1.0' encoding='~TF-8'?><a/>", "<?xm~?><a/>",
    "<a xmlns='u~'/>", "<a xmlns:p='~'/>", "<a xmlns:~='u'/>", "<p~a xmlns:p='u'/>", "<p:~ xmlns:p='u'/>",
    "<p:a~ xmlns:p='u'/>", "<~:a xmlns:p='u'/>", "<a xml~ns='u'/>", "<a xmlns~='u'/>",
]  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
def test_every_byte_at_every_place(hole: str) -> None:
    before, _, after = hole.encode().partition(b"~")
    for byte in range(256):
        assert_alike(before + bytes((byte,)) + after)


def test_every_sequence_of_two_bytes_and_the_edges_of_longer_ones() -> None:
    edges = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBD, 0xBE, 0xBF, 0xC0, 0xFF)
    sequences = [bytes((first, second)) for first in range(0x80, 0x100) for second in range(256)]
    for first in range(0xE0, 0x100):
        for second in edges:
            sequences += [bytes((first, second, third)) for third in edges]
            sequences += [bytes((first, second, third, 0x80)) for third in edges]
            sequences += [bytes((first, second, 0x80, fourth)) for fourth in edges]
    for sequence in sequences:
        assert_alike(b"<a b='" + sequence + b"'>" + sequence + b"</a>")
        assert_alike(b"<a>" + sequence)


def test_no_character_of_a_name_is_taken_that_expat_refuses() -> None:
    """Of the letters beyond ASCII the tokeniser knows the common ones, and no others."""
    taken = 0
    for code in range(0x80, 0x10000):
        character = chr(code).encode("utf-8", "surrogatepass")
        for name in (character, b"a" + character):
            events = read_events(b"<" + name + b"/>", "tokenizer")
            if events != GAVE_UP:
                taken += 1
                assert events == expat_events(b"<" + name + b"/>"), hex(code)
    assert taken > 2 * 30_000


# -- one message after another ---------------------------------------------------------------------------


def test_what_a_message_leaves_behind_does_not_matter() -> None:
    bound = b"<a xmlns='u' xmlns:p='v'><p:b><c xmlns:q='w' d='1' d='2'"
    for message in (b"<p:b/>", b"<a><q:c/></a>"):
        assert read_events(bound + b"/></p:b></a>", "tokenizer") == GAVE_UP
        assert read_events(message, "tokenizer") == GAVE_UP
    for message in (b"<a/>", b"<a><c d='1'/></a>", b"<p:b xmlns:p='x'/>"):
        assert read_events(bound, "tokenizer") == GAVE_UP
        assert assert_alike(message)


@pytest.mark.skipif(SANITIZED, reason="ASan holds what was freed; passes with quarantine_size_mb=0")
@pytest.mark.parametrize("reader", READERS)
def test_names_without_end_do_not_fill_the_memory(reader: ReaderName) -> None:
    def read(first: int, last: int) -> None:
        for i in range(first, last):
            tags = b"".join(b"<name-%d-%d attribute-%d='1'/>" % (i, j, j) for j in range(2_000))
            assert isinstance(kernel.count_events(b"<a>" + tags + b"</a>", reader), tuple)

    read(0, 100)
    before = resident_bytes()
    read(100, 500)
    assert resident_bytes() - before < 20_000_000  # the names alone would be a hundred million


def resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except FileNotFoundError:
        pytest.skip("this system does not tell how much memory is resident")


@pytest.mark.parametrize("reader", READERS)
def test_symbols_are_kept_as_long_as_the_version_is_the_same(reader: ReaderName) -> None:
    def unresolved(message: bytes, **version: int) -> int:
        counts: tuple[int, ...] = kernel.count_events(message, reader, **version)
        return counts[-1]

    message = b"<a x='1' xmlns:p='u'><p:b x='2'/><p:b/><a/></a>"
    assert unresolved(message) == 3
    assert unresolved(message) == 3
    assert unresolved(message, version=1) == 3
    assert unresolved(message, version=1) == 0
    assert unresolved(b"<c x=''/>", version=1) == 1
    assert unresolved(message, version=2) == 3
    assert unresolved(message) == 3
    assert unresolved(message, version=2) == 3


def test_threads_read_at_once() -> None:
    messages = [
        b"<a xmlns='u%d'>" % i + b"".join(b"<b%d c='&lt;'>x\r\n</b%d>" % (j, j) for j in range(i)) + b"</a>"
        for i in range(40)
    ]
    wanted = [kernel.count_events(message, "expat") for message in messages]
    wrong: list[object] = []

    def read(seed: int) -> None:
        rng = Random(seed)
        for _ in range(300):
            i, reader = rng.randrange(len(messages)), rng.choice(READERS)
            counts = kernel.count_events(messages[i], reader, times=5)
            if counts != wanted[i]:
                wrong.append((reader, i, counts))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- hostile messages ------------------------------------------------------------------------------------

COLLIDING = 100_000
"""names that collide: some 50 ms if each is found at once, and seconds if they form one chain"""


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["hash of Java", "first and last bytes"])
def test_names_chosen_to_collide_cost_no_more_than_others(kind: str, reader: ReaderName) -> None:
    rng = Random(17)
    if kind == "hash of Java":  # "Aa" and "BB" have one hash, and so have all sequences of them
        bits = [f"{number:017b}" for number in rng.sample(range(1 << 17), COLLIDING)]
        colliding = [each.replace("0", "Aa").replace("1", "BB") for each in bits]
    else:  # what the places of recent names are chosen by
        colliding = [f"same-head{number:015}same-tail." for number in rng.sample(range(10**15), COLLIDING)]
    others = [f"n{rng.getrandbits(4 * len(name)):0{len(name)}x}"[: len(name)] for name in colliding]

    def seconds(chosen: list[str]) -> float:
        message = ("<a>" + "".join(f"<{name}/>" for name in chosen * 2) + "</a>").encode()
        assert isinstance(kernel.count_events(message, reader), tuple)
        return min(cpu_seconds(lambda: kernel.count_events(message, reader)) for _ in range(3))

    assert seconds(colliding) < 2 * seconds(others) + 0.01


def test_hostile_files_are_read_as_by_pyexpat() -> None:
    paths = [path for path in sorted(shared_data.folder("hostile").iterdir()) if path.is_file()]
    assert len(paths) > 20
    for path in paths:
        assert_alike(path.read_bytes())


@pytest.mark.parametrize("folder", ["bib", "iso20022", "nitf", "shakespeare", "ubl", "xmark"])
def test_real_messages_are_read_as_by_pyexpat(folder: str) -> None:
    messages = [path.read_bytes() for path in sorted(shared_data.folder(folder).rglob("*.xml"))]
    assert messages
    for message in messages:
        is_usual = isinstance(expat_events(message), list) and b"iso-8859-1" not in message[:100].lower()
        assert assert_alike(message) == is_usual
