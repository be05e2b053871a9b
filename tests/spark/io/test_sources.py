"""Messages from files and tables: none lost, doubled or cut, however the files are split among workers."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sapwood import Limits, Matcher
from sapwood.errors import RecordError
from sapwood.input_files import read_messages as read_in_one_process
from sapwood.records import RecordScanner, message
from sapwood.spark import match, read_messages
from sapwood.spark.io.formats import open_format, read_files, select_messages
from sapwood.spark.kafka.kafka_source import select_records
from sapwood.workload import MessageGenerator, load_dtd

Messages = dict[str, tuple[bytes | None, str | None]]
"""id → body, and why it could not be read"""


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has files split after so many bytes."""
    return lambda chunk: monkeypatch.setattr("sapwood.spark.io.formats.CHUNK_BYTES", chunk)


def collected(frame: DataFrame) -> Messages:
    problem = "problem" if "problem" in frame.columns else "_problem"
    rows = frame.select("message_id", "body", problem).collect()
    found = {
        row["message_id"]: (bytes(row["body"]) if row["body"] is not None else None, row[problem])
        for row in rows
    }
    assert len(found) == len(rows), "an id comes twice"
    return found


def read(spark: SparkSession, path: Path, **how: Any) -> Messages:
    return collected(read_messages(spark, str(path), **how))


def bodies(found: Messages) -> list[bytes]:
    """The bodies of messages that were all read."""
    assert [problem for _, problem in found.values() if problem is not None] == []
    return [body for body, _ in found.values() if body is not None]


def in_one_process(path: Path) -> list[bytes]:
    """The same, but for empty files, which are a problem on Spark."""
    return sorted(message.body for message in read_in_one_process([str(path)]) if message.body)


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    return path


# -- files and lines -------------------------------------------------------------------------------------

_LINES = MessageGenerator(load_dtd("quotes"), seed=1).take(30)
_FOLDER = {
    "plain.xml": b"<a/>",
    "empty.xml": b"",
    "bom.xml": b"\xef\xbb\xbf<a/>",
    "latin.xml": "<?xml version='1.0' encoding='ISO-8859-1'?>\n<a>ü</a>".encode("latin-1"),
    "packed.xml.gz": b"<a>packed</a>",
    "lines.xmll": b"\n".join(_LINES) + b"\n",
    "crlf.xmll": b"\r\n".join(_LINES[:9]) + b"\r\n",
    "blank.xmll": b"\n\n  \n<a>1</a>\n\r\n\t\n<a>2</a>\n\n",
    "unended.xmll": b"<a>3</a>\n<a>4</a>",
    "bom.xmll": b"\xef\xbb\xbf<a>5</a>\n<a>6</a>\n",
    "empty.xmll": b"",
    "packed.xmll.gz": b"\n".join(_LINES[:5]),
    "ignored.txt": b"<a/>",
    "ignored.gz": b"<a/>",
    "below/deep er/a b.xml": b"<a>space</a>",
    "below/ünï.xml": "<a>ünï</a>".encode(),
    "below/100%.xml": b"<a>percent</a>",
    "below/%41.xml": b"<a>encoded</a>",
    "below/12:30.xml": b"<a>colon</a>",
    "below/a=b/x+y&z#.xml": b"<a>signs</a>",
    "below/[1]{2}*?.xml": b"<a>patterns</a>",
    "below/12:30 %20.xmll": b"<a>7</a>\n<a>8</a>\n",
}


def make_folder(folder: Path) -> Path:
    for name, content in _FOLDER.items():
        write(folder / name, content)
    return folder


@pytest.mark.parametrize("name", ["in [1] {x} %20 ü*", "12:30"])
def test_a_folder_is_read_as_in_one_process(spark: SparkSession, tmp_path: Path, name: str) -> None:
    folder = make_folder(tmp_path / name)
    found = read(spark, folder)
    assert found.pop("empty.xml") == (None, "the file is empty")
    assert sorted(bodies(found)) == in_one_process(folder)
    assert {id for id in found if "@" not in id} == {
        name for name, content in _FOLDER.items() if name.endswith((".xml", ".xml.gz")) and content
    }
    assert found["below/12:30 %20.xmll@9"] == (b"<a>8</a>", None)
    assert found["blank.xmll@5"] == (b"<a>1</a>", None)
    assert read(spark, Path(str(folder) + "/")).items() >= found.items()


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_lines_are_whole_wherever_a_file_is_split(
    spark: SparkSession, tmp_path: Path, chunk: int, split: Callable[[int], None]
) -> None:
    lines = [b"<a/>", b"", b"<b>%b</b>" % (b"x" * 60), b" ", b"<c/>", b"<d>\xc3\xbc</d>", b"<e/>"]
    write(tmp_path / "lf.xmll", b"\n".join(lines))
    write(tmp_path / "crlf.xmll", b"\r\n".join(lines) + b"\r\n")
    write(tmp_path / "packed.xmll.gz", b"\n".join(lines) + b"\n")
    whole = read(spark, tmp_path)
    split(chunk)
    assert read(spark, tmp_path) == whole
    assert sorted(bodies(whole)) == in_one_process(tmp_path)


def test_ids_are_the_same_for_any_number_of_partitions(
    spark: SparkSession, tmp_path: Path, split: Callable[[int], None]
) -> None:
    split(64)
    folder = make_folder(tmp_path / "inbox")
    found = read(spark, folder, partitions=1)
    assert read(spark, folder, partitions=5) == found
    assert read_messages(spark, str(folder / "below"), partitions=5).rdd.getNumPartitions() == 5


def test_one_file_may_be_read(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "inbox")
    assert read(spark, folder / "plain.xml") == {"plain.xml": (b"<a/>", None)}
    found = read(spark, folder / "below" / "12:30 %20.xmll")
    assert found == {"12:30 %20.xmll@0": (b"<a>7</a>", None), "12:30 %20.xmll@9": (b"<a>8</a>", None)}
    assert read(spark, folder / "below" / "[1]{2}*?.xml") == {"[1]{2}*?.xml": (b"<a>patterns</a>", None)}


def test_a_pattern_of_names_may_be_read(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a1", "a2", "b1"):
        write(tmp_path / f"{name}.xml", f"<{name}/>".encode())
    assert sorted(bodies(read(spark, tmp_path / "a*.xml"))) == [b"<a1/>", b"<a2/>"]
    assert sorted(bodies(read(spark, tmp_path / "[ab]1.xml"))) == [b"<a1/>", b"<b1/>"]


def test_an_empty_folder_has_no_messages(spark: SparkSession, tmp_path: Path) -> None:
    assert read(spark, tmp_path) == {}
    assert read(spark, tmp_path, record="r") == {}


def test_messages_were_published_when_their_file_was_changed(spark: SparkSession, tmp_path: Path) -> None:
    os.utime(write(tmp_path / "a.xml", b"<a/>"), (1_700_000_000, 1_700_000_000))
    row = read_messages(spark, str(tmp_path)).selectExpr("cast(published_at as string) t").first()
    assert row is not None
    assert row["t"] == str(datetime.fromtimestamp(1_700_000_000, UTC))[:19]


def test_messages_that_are_too_long_are_rejected_with_their_first_bytes(
    spark: SparkSession, tmp_path: Path
) -> None:
    long = b"<a>%b</a>" % (b"x" * 100_000)
    fits = b"<a>%b</a>" % (b"y" * 993)
    assert len(fits) == 1_000
    write(tmp_path / "lines.xmll", b"\n".join([b"<a/>", long, fits, b"<b/>"]) + b"\n")
    write(tmp_path / "crlf.xmll", b"\r\n".join([fits, long, b"<c/>"]) + b"\r\n")
    write(tmp_path / "long.xml", long)
    write(tmp_path / "long.xml.gz", long)
    limits = Limits(bytes=1_000)
    messages = read_messages(spark, str(tmp_path), limits=limits)
    rows = match(messages, {"all": "/*"}, shape="messages", limits=limits).collect()
    refused = {row["message_id"]: row["error"] for row in rows if row["error"] is not None}
    assert sorted(refused) == ["crlf.xmll@1002", "lines.xmll@5", "long.xml", "long.xml.gz"]
    assert all(bytes(error["body"]) == long[:1_001] for error in refused.values())
    assert all("1,000" in error["reason"] or "1000" in error["reason"] for error in refused.values())
    delivered = sorted(row["message_id"] for row in rows if row["subscriptions"])
    end = 5 + len(long) + 1
    crlf = ["crlf.xmll@0", f"crlf.xmll@{1_002 + len(long) + 2}"]
    lf = ["lines.xmll@0", f"lines.xmll@{end}", f"lines.xmll@{end + 1_001}"]
    assert delivered == sorted(crlf) + sorted(lf)


def test_read_messages_can_be_matched(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "inbox")
    matcher = Matcher()
    matcher.add_many([("ü", "//a[. = 'ü']"), ("all", "/*")])
    rows = match(read_messages(spark, str(folder)), matcher, shape="messages").collect()
    answers = {row["message_id"]: row["subscriptions"] for row in rows if row["error"] is None}
    assert answers["latin.xml"] == ["ü", "all"]
    assert answers["bom.xml"] == answers["bom.xmll@0"] == ["all"]
    errors = {row["message_id"]: row["error"]["reason"] for row in rows if row["error"] is not None}
    assert errors == {"empty.xml": "the file is empty"}


def test_the_columns_of_messages_are_documented_and_none_of_them_is_ours(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "a.xml", b"<a/>")
    messages = read_messages(spark, str(tmp_path))
    assert messages.columns == ["message_id", "body", "published_at", "problem"]
    assert all(f"`{name}`" in (read_messages.__doc__ or "") for name in messages.columns)
    assert match(messages, {"all": "/*"}).columns == ["message_id", "published_at", "subscription", "body"]
    theirs = spark.createDataFrame([("1", "<a/>", "none")], "message_id string, body string, problem string")
    row = match(theirs, {"all": "/*"}).first()
    assert row is not None
    assert row["problem"] == "none"  # which is a column like any other


# -- files that cannot be read ---------------------------------------------------------------------------


def listed(spark: SparkSession, *paths: Path) -> DataFrame:
    """Files as a listing of a while ago had them."""
    now = datetime(2024, 1, 1)
    rows = [(f"file:{path}", path.stat().st_size if path.is_file() else 100, now) for path in paths]
    return spark.createDataFrame(rows, "path string, length long, published_at timestamp")


@pytest.mark.parametrize("record", [None, "r"])
def test_a_file_that_is_gone_or_unreadable_is_rejected_alone(
    spark: SparkSession, tmp_path: Path, record: str | None, split: Callable[[int], None]
) -> None:
    split(40)
    good = write(tmp_path / "good.xml", b"<r/>")
    folder = tmp_path / "folder.xml"
    folder.mkdir()
    gone = [tmp_path / "gone.xml", tmp_path / "gone.xmll", tmp_path / "below" / "gone.xml.gz"]
    packed = gzip.compress(b"<r>" + os.urandom(9_000).hex().encode() + b"</r>")
    cut, other, bad = tmp_path / "cut.xml.gz", tmp_path / "other.xml.gz", tmp_path / "bad.xml.gz"
    cut.write_bytes(packed[:5_000])
    other.write_bytes(b"<r/>")
    bad.write_bytes(packed[:4_000] + bytes(1_000) + packed[5_000:])
    files = listed(spark, good, folder, *gone, cut, other, bad)
    found = collected(read_files(files, str(tmp_path), record=record))
    names = {id.split("@")[0] for id, (_, problem) in found.items() if problem is not None}
    assert names == {
        "folder.xml",
        "gone.xml",
        "gone.xmll",
        "below/gone.xml.gz",
        *(p.name for p in (cut, other, bad)),
    }
    assert [body for body, problem in found.values() if problem is None] == [b"<r/>"]
    assert all(body is None or problem is not None or body == b"<r/>" for body, problem in found.values())
    refused = match(read_files(files, str(tmp_path), record=record), {"all": "/*"}, shape="messages").filter(
        "error is not null"
    )
    reasons = {row["message_id"]: row["error"]["reason"] for row in refused.collect()}
    assert len(reasons) == len(found) - 1
    assert all("cannot be read" in reason or "ends within" in reason for reason in reasons.values())


def test_lines_before_the_place_where_a_file_is_cut_are_delivered(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [b"<a>%b</a>" % os.urandom(3_000).hex().encode() for _ in range(20)]
    (tmp_path / "cut.xmll.gz").write_bytes(gzip.compress(b"\n".join(lines))[:40_000])
    found = read(spark, tmp_path)
    delivered = [body for body, problem in found.values() if problem is None]
    assert delivered == lines[: len(delivered)]
    assert len(delivered) >= 5
    problems = [problem for _, problem in found.values() if problem is not None]
    assert len(problems) == 1
    assert problems[0].startswith("the file cannot be read")


# -- records ---------------------------------------------------------------------------------------------

_RECORDS = (
    b"<?xml version='1.0' encoding='ISO-8859-1'?><!DOCTYPE dump [<!ENTITY co 'Company'>]>\n"
    b"<dump xmlns='urn:d' xmlns:p='urn:p'>"
    b"<r n='1'>one &co;</r><r n='2'/>text<r\n n='3'\t/>"
    b"<!-- <r>no record</r> --><![CDATA[<r>nor this</r>]]><?pi <r/>?>"
    b"<group xmlns:p='urn:q'><r n='4'><p:x/><!-- </r> --><![CDATA[</r>]]><r>inner</r></r></group>"
    b"<rs><r n='5' a='</r>' b=\"<r>\">5 \xfc</r></rs>".replace(b"'</r>'", b"'&lt;/r>'").replace(
        b'"<r>"', b'"r>"'
    )
    + b"".join(b"<r n='%d'>%b</r>\n" % (n, b"x" * (n % 40)) for n in range(6, 60))
    + b"</dump>"
)


def scanned(element: str, data: bytes) -> Messages:
    records = RecordScanner(element, io.BytesIO(data))
    return {
        f"dump.xml@{record.start}": (message(record.context, data[record.start : record.end]), None)
        for record in records
    }


@pytest.mark.parametrize("chunk", [1, 300, 1 << 20])
def test_records_are_whole_wherever_a_file_is_split(
    spark: SparkSession, tmp_path: Path, chunk: int, split: Callable[[int], None]
) -> None:
    split(chunk)
    path = write(tmp_path / "dump.xml", _RECORDS)
    expected = scanned("r", _RECORDS)
    assert len(expected) == 59
    assert read(spark, path, record="r") == expected


def test_records_carry_what_they_need_from_outside(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "dump.xml", _RECORDS)
    queries = {
        "entity": "/d:r[. = 'one Company']",
        "inherited": "/d:r//q:x",
        "latin": "/d:r[contains(., 'ü')]",
        "any": "/d:r",
        "lost": "/d:r[@n = 59]",
    }
    namespaces = {"d": "urn:d", "q": "urn:q"}
    rows = match(read_messages(spark, str(path), record="r"), queries, namespaces=namespaces).collect()
    found = [row["subscription"] for row in rows]
    assert {id: found.count(id) for id in queries} == {
        "entity": 1,
        "inherited": 1,
        "latin": 1,
        "any": 59,
        "lost": 1,
    }


def test_records_of_a_compressed_file(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "dump.xml.gz", _RECORDS)
    found = read(spark, path, record="r")
    expected = scanned("r", _RECORDS)
    assert {id.replace(".gz", ""): body for id, body in found.items()} == expected


def test_records_of_all_the_files_in_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a b.xml", b"<d><r>1</r><r>2</r></d>")
    write(tmp_path / "below" / "ü.xml", b"<d><r>3</r></d>")
    write(tmp_path / "none.xml", b"<d/>")
    write(tmp_path / "ignored.txt", b"<d><r>4</r></d>")
    found = read(spark, tmp_path, record="r")
    assert found == {
        "a b.xml@3": (b"<r>1</r>", None),
        "a b.xml@11": (b"<r>2</r>", None),
        "below/ü.xml@3": (b"<r>3</r>", None),
    }


def test_a_file_of_any_name_may_hold_records(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "dump [2024].data", b"<d><r/></d>")
    assert read(spark, path, record="r") == {"dump [2024].data@3": (b"<r/>", None)}


def test_a_huge_record_among_small_ones(
    spark: SparkSession, tmp_path: Path, split: Callable[[int], None]
) -> None:
    split(1 << 20)
    filling = b"0123456789abcdef" * (50 << 16)
    small = [b"<r>%d</r>" % n for n in range(200)]
    data = (
        b"<d>" + b"".join(small[:100]) + b"<r big='1'>" + filling + b"</r>" + b"".join(small[100:]) + b"</d>"
    )
    path = write(tmp_path / "dump.xml", data)
    start = data.index(b"<r big")
    for limits, refused in ((Limits(), True), (Limits(bytes=64 << 20), False)):
        messages = read_messages(spark, str(path), record="r", limits=limits)
        matched = match(messages, {"big": "/r[@big]", "all": "/r"}, shape="messages", limits=limits)
        rows = {row["message_id"]: row for row in matched.collect()}
        assert len(rows) == 201
        big = rows.pop(f"dump.xml@{start}")
        assert all(row["subscriptions"] == ["all"] for row in rows.values())
        if refused:
            length = Limits().bytes + 1
            assert bytes(big["error"]["body"]) == data[start : start + length]
        else:
            assert big["error"] is None
            assert big["subscriptions"] == ["big", "all"]


_TAILS = [b"<r>cut off", b"<r><r>inner</r>", b"<r><![CDATA[</r>", b"<r a='1"]


@pytest.mark.parametrize("chunk", [20, 1 << 20])
def test_a_file_that_ends_within_a_record_delivers_all_before(
    spark: SparkSession, tmp_path: Path, chunk: int, split: Callable[[int], None]
) -> None:
    split(chunk)
    records = [b"<r>%d</r>" % n for n in range(10)]
    whole = b"<d>" + b"".join(records)
    for number, tail in enumerate(_TAILS):
        write(tmp_path / f"{number}.xml", whole + tail)
    found = read(spark, tmp_path, record="r")
    for number, tail in enumerate(_TAILS):
        assert found.pop(f"{number}.xml@{len(whole)}") == (tail, "the file ends within this record")
    assert sorted(bodies(found)) == sorted(records * len(_TAILS))


def test_a_file_whose_records_cannot_be_separated_is_rejected_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = b"<r>0</r><r>1</r><d x='<r>2</r>'>"
    path = write(tmp_path / "dump.xml", data)
    with pytest.raises(RecordError) as caught:
        list(RecordScanner("r", io.BytesIO(data)))
    found = read(spark, path, record="r")
    assert found == {
        "dump.xml@0": (b"<r>0</r>", None),
        "dump.xml@8": (b"<r>1</r>", None),
        f"dump.xml@{caught.value.offset}": (None, str(caught.value)),
    }


def test_generated_records_are_those_of_one_process(
    spark: SparkSession, tmp_path: Path, split: Callable[[int], None]
) -> None:
    split(5_000)
    data = b"<feed>\n" + b"\n".join(MessageGenerator(load_dtd("bibliography"), seed=2).take(200)) + b"</feed>"
    path = write(tmp_path / "dump.xml", data)
    element = load_dtd("bibliography").root
    expected = scanned(element, data)
    assert len(expected) == 200
    assert read(spark, path, record=element) == expected


# -- streams and tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [None, "a"])
def test_a_stream_of_files_is_what_the_batch_is(
    spark: SparkSession, tmp_path: Path, record: str | None, split: Callable[[int], None]
) -> None:
    split(64)
    folder = make_folder(tmp_path / "in [box]")
    stream = read_messages(spark, str(folder), streaming=True, record=record)
    assert stream.isStreaming
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(120)
    found = collected(spark.read.parquet(str(tmp_path / "out")))
    assert len(found) > 10
    in_a_table = read(spark, folder, record=record)
    empty = {id for id, (_, problem) in in_a_table.items() if problem == "the file is empty"}
    assert len(empty) == (1 if record is None else 2)  # Spark passes over them in a stream
    assert found == {id: read for id, read in in_a_table.items() if id not in empty}


_ROWS = [{"key": {"n": n}, "text": f"<a n='{n}'/>", "at": f"2024-01-0{n} 12:00:00"} for n in range(1, 6)]


def test_messages_from_json_lines(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "rows.json", "\n".join(map(json.dumps, _ROWS)).encode())
    frame = open_format(spark, "json", str(tmp_path), {})
    messages = select_messages(
        frame, body="text", id="concat('m', key.n)", published_at="to_timestamp(at)", keep=("key.n",)
    )
    assert messages.columns == ["message_id", "body", "published_at", "n"]
    rows = match(messages, {"odd": "/a[@n mod 2 = 1]"}).collect()
    assert sorted((row["message_id"], row["n"]) for row in rows) == [("m1", 1), ("m3", 3), ("m5", 5)]
    assert {row["published_at"].day for row in rows} == {1, 3, 5}


@pytest.mark.parametrize("streaming", [False, True])
def test_messages_from_parquet(spark: SparkSession, tmp_path: Path, streaming: bool) -> None:
    rows = [(n, b"<a n='%d'/>" % n) for n in range(20)]
    spark.createDataFrame(rows, "n int, raw binary").write.parquet(str(tmp_path / "in"))
    frame = open_format(spark, "parquet", str(tmp_path / "in"), {}, streaming=streaming)
    assert frame.isStreaming == streaming
    messages = select_messages(frame, body="raw", id="n")
    matched = match(messages, {"few": "/a[@n < 3]"})
    assert matched.columns == ["message_id", "subscription", "body"]
    if streaming:
        name = "few_messages"
        query = matched.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        matched = spark.table(name)
    assert sorted(row["message_id"] for row in matched.collect()) == ["0", "1", "2"]


def test_messages_from_kafka_are_called_by_where_they_are(spark: SparkSession) -> None:
    rows = [("orders", 3, 77, b"<a/>", datetime(2024, 1, 1)), ("orders", 3, 78, b"<", datetime(2024, 1, 2))]
    schema = "topic string, partition int, offset long, value binary, timestamp timestamp"
    messages = select_records(spark.createDataFrame(rows, schema))
    found = match(messages, {"a": "/a"}, shape="messages").collect()
    assert sorted(row["message_id"] for row in found) == ["orders/3/77", "orders/3/78"]
    assert found[0]["published_at"] == datetime(2024, 1, 1)


def test_a_given_schema_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "rows.json", b'{"id": 1, "body": "<a/>"}')
    frame = open_format(spark, "json", str(tmp_path), {}, "id string, body string, absent int")
    assert [dict(row.asDict()) for row in frame.collect()] == [{"id": "1", "body": "<a/>", "absent": None}]
