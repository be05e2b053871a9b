"""What pyexpat reports for a message, to compare the readers of the compiled kernel with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Any, Literal
from xml.parsers import expat

from tests.support.compiled_kernel import compiled_kernel

_kernel = compiled_kernel()

GAVE_UP, NOT_WELL_FORMED, LIMIT_EXCEEDED, HAS_DOCTYPE, UNKNOWN_ENCODING = -1, -2, -3, -4, -5
"""`enum reader_status` in reader.h"""

Event = tuple[Any, ...]
Events = list[Event]
ReaderName = Literal["tokenizer", "expat"]

_NATIVE_ENCODINGS = {"utf-8", "utf-16", "utf-16le", "utf-16be", "iso-8859-1", "us-ascii"}
_DECLARED = re.compile(rb"""encoding[ \t\r\n]*=[ \t\r\n]*["']([A-Za-z0-9._\-]+)["']""")


@dataclass(frozen=True)
class ReaderLimits:
    """The limits that readers check themselves, as in `Limits`."""

    depth: int = 500
    attributes: int = 1_000
    name_length: int = 1_000


def random_limits(rng: Random) -> ReaderLimits:
    """Return the usual limits, or at times ones that even small messages exceed."""
    if rng.random() < 0.8:
        return ReaderLimits()
    return ReaderLimits(
        rng.choice((1, 2, 4, 500)), rng.choice((0, 1, 3, 1_000)), rng.choice((1, 5, 10, 36, 42, 1_000))
    )


class _HasDoctype(Exception):
    pass


def expat_events(data: bytes, encoding: str | None = None) -> Events | int:
    """Return what pyexpat reports, as `read_events` does, or the status that fits its error."""
    events: Events = []
    pending: list[str] = []

    def end_text() -> None:
        if pending:
            events.append(("text", "".join(pending)))
            pending.clear()

    def start(name: str, attributes: list[str]) -> None:
        end_text()
        events.append(("start", name, list(zip(attributes[::2], attributes[1::2], strict=True))))

    def end(name: str) -> None:
        end_text()
        events.append(("end",))

    def boundary(*_: str) -> None:
        end_text()
        events.append(("boundary",))

    def declare(prefix: str | None, uri: str | None) -> None:
        end_text()
        events.append(("declare", prefix or "", uri or ""))

    def doctype(*_: object) -> None:
        raise _HasDoctype

    parser = expat.ParserCreate(encoding, "}")
    parser.ordered_attributes = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = pending.append
    parser.CommentHandler = boundary
    parser.ProcessingInstructionHandler = boundary
    parser.StartNamespaceDeclHandler = declare
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except _HasDoctype:
        return HAS_DOCTYPE
    except (expat.ExpatError, ValueError, LookupError):  # the latter two from codecs
        return NOT_WELL_FORMED
    return events


def exceeds(events: Events, limits: ReaderLimits) -> bool:
    """Return whether a message exceeds a limit, as the reader in Python counts."""
    depth = 0
    for event in events:
        if event[0] == "start":
            depth += 1
            names = [event[1], *(name for name, _ in event[2])]
            if depth > limits.depth or len(event[2]) > limits.attributes:
                return True
        elif event[0] == "declare":
            names = [event[1], event[2]]
        else:
            depth -= event[0] == "end"
            continue
        if max(map(len, names)) > limits.name_length:
            return True
    return False


def read_events(
    data: bytes, reader: ReaderName, limits: ReaderLimits | None = None, encoding: str | None = None
) -> Events | int:
    """Return what a reader of the compiled kernel reports, or its status."""
    limits = limits or ReaderLimits()
    events: Events | int = _kernel.read_events(
        data, reader, encoding, limits.depth, limits.attributes, limits.name_length
    )
    return events


def _declares_foreign_encoding(data: bytes) -> bool:
    declared = _DECLARED.search(data.replace(b"\0", b""))
    return declared is not None and declared[1].decode().lower() not in _NATIVE_ENCODINGS


def assert_alike(data: bytes, limits: ReaderLimits | None = None) -> bool:
    """Assert that both readers report what pyexpat does; return whether the tokeniser read the message."""
    limits = limits or ReaderLimits()
    wanted = expat_events(data)
    if not isinstance(wanted, int) and exceeds(wanted, limits):
        wanted = LIMIT_EXCEEDED
    _assert_expat_alike(data, limits, wanted)
    got = read_events(data, "tokenizer", limits)
    if isinstance(got, int):
        assert got == GAVE_UP or (got == LIMIT_EXCEEDED and isinstance(wanted, int)), (got, data)
        return False
    assert got == wanted, data
    return True


def _assert_expat_alike(data: bytes, limits: ReaderLimits, wanted: Events | int) -> None:
    got = read_events(data, "expat", limits)
    if got == UNKNOWN_ENCODING:
        assert _declares_foreign_encoding(data), data
    elif wanted == NOT_WELL_FORMED:
        # A message may exceed a limit, or have something like a DOCTYPE, before the error.
        has_doctype = got == HAS_DOCTYPE and b"<!D" in data.replace(b"\0", b"")
        exceeded = got == LIMIT_EXCEEDED and limits != ReaderLimits()
        assert got == NOT_WELL_FORMED or has_doctype or exceeded, (got, data)
    else:
        assert got == wanted, data
