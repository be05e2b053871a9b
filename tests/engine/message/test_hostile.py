"""Hostile messages are refused or harmless, in bounded time and memory; nothing outside is ever fetched."""

from __future__ import annotations

import gc
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from sapwood import Limits, Matcher, MessageError
from sapwood.engine.fallback import process_pool
from tests.support.requirements import SLOWDOWN
from tests.support.shared_data import DATA

pytestmark = pytest.mark.slow

QUERIES = ["//a", "//*[@x = 'v' or . = 'v']", "//a[b][c]/d", "//*[not(*)]", "count(//a/..) * 1 > 3"]


def population(queries: list[str]) -> Matcher:
    matcher = Matcher()
    matcher.add("sane", "/sane[@x = 1]")
    matcher.add_many(enumerate(queries))
    return matcher


# -- nothing outside is fetched --------------------------------------------------------------------------


class Recorder(BaseHTTPRequestHandler):
    """A server that records every request for an external entity."""

    requests: list[str]

    def do_GET(self) -> None:
        type(self).requests.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<secret>SECRET</secret>")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[tuple[str, list[str]]]:
    """The address of a server on this machine, and the requests it gets."""
    Recorder.requests = []
    server = HTTPServer(("127.0.0.1", 0), Recorder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/secret.dtd", Recorder.requests
    server.shutdown()
    thread.join()
    server.server_close()


REFERENCES = {
    "an external subset": '<!DOCTYPE a SYSTEM "URI"><a x="v"><b/></a>',
    "a public external subset": '<!DOCTYPE a PUBLIC "-//X//EN" "URI"><a><b/></a>',
    "an external and an internal subset": '<!DOCTYPE a SYSTEM "URI" [<!ENTITY e "v">]><a>&e;</a>',
    "an external subset, standalone": '<?xml version="1.0" standalone="no"?><!DOCTYPE a SYSTEM "URI"><a/>',
    "an entity": '<!DOCTYPE a [<!ENTITY e SYSTEM "URI">]><a>&e;</a>',
    "an entity in an attribute": '<!DOCTYPE a [<!ENTITY e SYSTEM "URI">]><a x="&e;"/>',
    "an entity in an entity": '<!DOCTYPE a [<!ENTITY e SYSTEM "URI"><!ENTITY f "&e;">]><a>&f;</a>',
    "an entity never used": '<!DOCTYPE a [<!ENTITY e SYSTEM "URI">]><a/>',
    "an undeclared entity": '<!DOCTYPE a SYSTEM "URI"><a>&e;</a>',
    "an undeclared entity in an attribute": '<!DOCTYPE a SYSTEM "URI"><a x="v&e;w"/>',
    "a parameter entity": '<!DOCTYPE a [<!ENTITY % p SYSTEM "URI"> %p;]><a/>',
    "one and a default": '<!DOCTYPE a [<!ENTITY % p SYSTEM "URI"> %p;<!ATTLIST a x CDATA "v">]><a/>',
    "one that declares another": "<!DOCTYPE a [<!ENTITY % p \"<!ENTITY e SYSTEM 'URI'>\"> %p;]><a>&e;</a>",
    "an unparsed entity": '<!DOCTYPE a [<!NOTATION n SYSTEM "URI"><!ENTITY e SYSTEM "URI" NDATA n>]><a/>',
    "an inclusion": '<a><xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="URI" parse="text"/></a>',
    "a schema": '<a xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:noNamespaceSchemaLocation="URI"/>',
    "a style sheet": '<?xml-stylesheet type="text/xsl" href="URI"?><a/>',
    "a namespace": '<a xmlns="URI"/>',
}  # fmt: skip


@pytest.mark.parametrize("template", REFERENCES.values(), ids=REFERENCES.keys())
@pytest.mark.parametrize("queries", [["//a"], QUERIES], ids=["plain paths", "all kinds"])
def test_nothing_outside_the_message_is_fetched(
    template: str, queries: list[str], tmp_path: Path, web: tuple[str, list[str]]
) -> None:
    address, requests = web
    secret = tmp_path / "secret.dtd"
    secret.write_text("<!ENTITY e 'SECRET'><!ATTLIST a x CDATA 'SECRET'>SECRET")
    watch_reads = reads_show(secret)
    matcher = population([*queries, "//*[contains(., 'SECRET')]", "//@*[contains(., 'SECRET')]"])
    for uri in (address, str(secret), secret.as_uri(), secret.name):
        message = template.replace("URI", uri)
        for ask in (matcher.match, matcher.select):
            result: list[object] = []
            try:
                result = list(ask(message))
            except MessageError as error:
                assert "SECRET" not in str(error)
            assert not {len(queries), len(queries) + 1} & set(result)
    assert requests == []
    if watch_reads:
        assert secret.stat().st_atime == LONG_AGO
    assert "sane" in matcher.match('<sane x="1"/>')


LONG_AGO = 1_000_000_000.0


def reads_show(path: Path) -> bool:
    """Makes reading the file show in its time of access, where the file system keeps that."""

    def reset() -> None:
        os.utime(path, (LONG_AGO, LONG_AGO + 1_000))

    reset()
    path.read_bytes()
    shows = path.stat().st_atime != LONG_AGO
    reset()
    return shows


# -- bombs -----------------------------------------------------------------------------------------------

BILLION = "".join(f"<!ENTITY e{i} '{f'&e{i - 1};' * 10}'>" for i in range(1, 10))
PARAMETERS = "".join(f"<!ENTITY % p{i} '{f'&#37;p{i - 1};' * 10}'>" for i in range(1, 10))


def _names(n: int) -> str:
    return "".join(f"<n{i}/>" for i in range(n))


BOMBS: dict[str, Callable[[], str]] = {
    "a billion laughs": lambda: f"<!DOCTYPE a [<!ENTITY e0 'ha'>{BILLION}]><a>&e9;</a>",
    "a billion laughs in an attribute": lambda: f"<!DOCTYPE a [<!ENTITY e0 'ha'>{BILLION}]><a x='&e9;'/>",
    "a billion laughs in a default": lambda: (
        f"<!DOCTYPE a [<!ENTITY e0 'ha'>{BILLION}<!ATTLIST b x CDATA '&e9;'>]><a><b/></a>"
    ),
    "a billion elements": lambda: f"<!DOCTYPE a [<!ENTITY e0 '<b/>'>{BILLION}]><a>&e9;</a>",
    "a billion nothings": lambda: f"<!DOCTYPE a [<!ENTITY e0 ''>{BILLION}]><a>&e9;</a>",
    "a billion parameters": lambda: (
        f"<!DOCTYPE a [<!ENTITY % p0 'ha'>{PARAMETERS}<!ENTITY e '&#37;p9;'>]><a>&e;</a>"
    ),
    "backwards": lambda: f"<!DOCTYPE a [{BILLION}<!ENTITY e0 'ha'>]><a>&e9;</a>",
    "in UTF-16": lambda: f"<!DOCTYPE a [<!ENTITY e0 'ha'>{BILLION}]><a>&e9;</a>",
    "quadratic": lambda: f"<!DOCTYPE a [<!ENTITY e '{'v' * 50_000}'>]><a>{'&e;' * 20_000}</a>",
    "quadratic, one an element": lambda: (
        f"<!DOCTYPE a [<!ENTITY e '{'v' * 50_000}'>]><a>{'<b>&e;</b>' * 10_000}</a>"
    ),
    "quadratic in attributes": lambda: (
        f"<!DOCTYPE a [<!ENTITY e '{'v' * 50_000}'>]><a>" + '<b x="&e;"/>' * 10_000 + "</a>"
    ),
    "an entity with a long name": lambda: f"<!DOCTYPE a [<!ENTITY {'e' * 50_000} 'v'>]><a/>",
    "a loop": lambda: "<!DOCTYPE a [<!ENTITY e '&f;'><!ENTITY f '&e;'>]><a>&e;</a>",
    "a loop never entered": lambda: "<!DOCTYPE a [<!ENTITY e '&f;'><!ENTITY f '&e;'>]><a/>",
    "a chain of entities": lambda: (
        "<!DOCTYPE a [" + "".join(f"<!ENTITY e{i} '&e{i + 1};'>" for i in range(20_000)) + "]><a>&e0;</a>"
    ),
    "many entities": lambda: (
        "<!DOCTYPE a [" + "".join(f"<!ENTITY e{i} 'v'>" for i in range(20_000)) + "]><a>&e0;</a>"
    ),
    "a long default": lambda: f"<!DOCTYPE a [<!ATTLIST b x CDATA '{'v' * 100_000}'>]><a>{'<b/>' * 600}</a>",
    "many defaults": lambda: (
        "<!DOCTYPE a [<!ATTLIST b " + " ".join(f"x{i} CDATA 'v'" for i in range(1_000)) + ">]>"
        f"<a>{'<b/>' * 2_000}</a>"
    ),
    "many attribute lists": lambda: (
        "<!DOCTYPE a [" + "".join(f"<!ATTLIST b x{i} CDATA 'v'>" for i in range(20_000)) + "]><a><b/></a>"
    ),
    "a long namespace": lambda: f"<a xmlns='{'u' * 100_000}'>{_names(600)}</a>",
    "a long namespace of attributes": lambda: (
        f"<a xmlns:p='{'u' * 100_000}'>" + "".join(f"<b p:x{i}=''/>" for i in range(600)) + "</a>"
    ),
    "many namespaces": lambda: "".join(f"<a xmlns:p{i}='u' xmlns='v{i}'>" for i in range(400)) + "</a>" * 400,
    "a long name": lambda: f"<a><{'n' * 1_000_000}/></a>",
    "long names": lambda: "<a>" + "".join(f"<{'n' * 10_000}{i}/>" for i in range(100)) + "</a>",
    "a long attribute name": lambda: f"<a {'n' * 1_000_000}=''/>",
    "a long value": lambda: f"<a x='{'v' * 1_000_000}'/>",
    "a long text": lambda: f"<a>{'v' * 1_000_000}</a>",
    "a long comment": lambda: f"<a><!--{'v' * 1_000_000}--></a>",
    "many comments": lambda: f"<a>{'v<!---->' * 30_000}</a>",
    "many attributes": lambda: "<a " + " ".join(f"x{i}=''" for i in range(100_000)) + "/>",
    "many names": lambda: f"<a>{_names(10_000)}</a>",
    "many paths": lambda: f"<a>{''.join(f'<b><c{i % 7}><d{i}/></c{i % 7}></b>' for i in range(4_000))}</a>",
    "deep": lambda: "<a>" * 100_000,
    "deep and closed": lambda: "<a>" * 100_000 + "</a>" * 100_000,
    "as deep as allowed": lambda: "<a>" * 500 + "</a>" * 500,
    "wide at the bottom": lambda: "<a>" * 490 + "<b/><c/><d/>" * 1_000 + "</a>" * 490,
    "wide": lambda: f"<a>{'<a/>' * 15_000}</a>",
    "never closed": lambda: "<a><b>" + "<c/>" * 30_000,
    "tags that never end": lambda: "<a " * 100_000,
    "ampersands": lambda: "<a>" + "&" * 100_000,
    "opening brackets": lambda: "<" * 100_000,
    "a declaration that never ends": lambda: "<!DOCTYPE a [" + "<!--" * 50_000,
    "bytes of no meaning": lambda: "\x00" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_entity_bombs_are_refused_or_harmless(
    bomb: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    message = bomb().encode("utf-16" if "UTF-16" in request.node.name else "utf-8")
    refused_or_harmless(message)


@pytest.mark.parametrize(
    "path",
    sorted(p for p in (DATA / "hostile").glob("*") if p.suffix in (".xml", ".ent", ".dtd")),
    ids=lambda path: path.name,
)
def test_entity_bombs_of_other_collections_are_refused_or_harmless(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)  # where the files they point at are
    refused_or_harmless(path.read_bytes())


def refused_or_harmless(message: bytes) -> None:
    """Asks for matches and for nodes; time and memory must stay within a small multiple of the message."""
    matcher = population(QUERIES)
    for ask in (matcher.match, matcher.select):
        started = time.process_time()
        attempt(ask, message)
        assert time.process_time() - started < SLOWDOWN * (1 + len(message) * 2e-6), ask
    tracemalloc.start()
    try:
        attempt(matcher.match, message)
        gc.collect()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 25e6 + 150 * len(message)
    assert kept < 5e6 + 30 * len(message)
    assert "sane" in matcher.match('<sane x="1"/>')


def attempt(ask: Callable[[bytes], object], message: bytes) -> None:
    try:
        ask(message)
    except MessageError as error:
        assert len(str(error)) < 1_000  # it does not quote the bomb


def test_bombs_leave_nothing_behind() -> None:
    """What many refused messages left in caches is no more than what one did."""
    matcher = population(["//a", "//b[@x]"])
    bombs = [f"<a xmlns='{'u' * 20_000}{n}'>{_names(100)}</a>".encode() for n in range(40)]
    for bomb in bombs[:2]:
        attempt(matcher.match, bomb)
    tracemalloc.start()
    for bomb in bombs[2:]:
        attempt(matcher.match, bomb)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 3e6


def test_names_in_messages_do_not_accumulate_in_lxml(monkeypatch: pytest.MonkeyPatch) -> None:
    """lxml keeps every name it ever saw: the process in which it works has to go now and then."""
    processes: list[int] = []
    run = process_pool.Process.run

    def watched(process: process_pool.Process, *args: Any) -> Any:
        processes.append(process.pid)
        return run(process, *args)

    monkeypatch.setattr(process_pool.Process, "run", watched)
    monkeypatch.setattr(process_pool, "MESSAGES_PER_PROCESS", 5)
    with population(["//b/.."]) as matcher:
        for i in range(23):
            assert 0 in matcher.match(f"<n{i}><b/></n{i}>")
    assert len(processes) == 23
    assert len(set(processes)) >= 4
    assert os.getpid() not in processes
    for process in processes[:20]:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_limits_may_be_made_tight() -> None:
    tight = Limits(bytes=2_000, depth=5, attributes=3, name_length=10, entity_expansion=10)
    matcher = Matcher(limits=tight)
    matcher.add("q", "/a")
    for bomb in BOMBS.values():
        attempt(matcher.match, bomb().encode())
        assert list(matcher.match("<a/>")) == ["q"]


def test_nesting_does_not_explode_however_many_queries_nest() -> None:
    """`//a//a//a//a//b` on 200 nested `a`, 500 such queries together: polynomial time, bounded memory."""
    matcher = Matcher()
    for i in range(500):
        steps = "//".join("a" if (i >> bit) & 1 else "*" for bit in range(9))
        matcher.add(i, f"//{steps}//b[@x = {i % 7}]" if i % 2 else f"//{steps}[@y or not(c)]//b")
    message = "<a>" * 200 + "<b x='3'/>" + "</a>" * 200
    started = time.process_time()
    tracemalloc.start()
    found = list(matcher.match(message))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [i for i in range(500) if i % 2 == 0 or i % 7 == 3]
    assert time.process_time() - started < 60
    assert peak < 100e6
