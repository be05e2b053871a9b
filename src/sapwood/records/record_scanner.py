"""A scanner that finds the records of a file in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat
from typing import BinaryIO, NamedTuple

from sapwood.errors import ArgumentError, RecordError
from sapwood.records.file_window import Window
from sapwood.records.markup import (
    BROKEN_TAG,
    DECLARATION_START,
    DOCTYPE,
    OUTSIDE_CLOSE,
    OUTSIDE_RECORD,
    TAG_START,
    compile_inside,
    compile_outside,
    compile_start,
)
from sapwood.records.plain_records import PlainRecordIndex
from sapwood.records.prolog import Declarations, check_width, declared_encoding, default_declarations
from sapwood.records.record_context import Context, Scope

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_INVALID_NAME = re.compile(r"[\s!-,/;-@\[-^`{-~]|^[-.0-9]")
_MAX_DEPTH = 10_000  # open elements outside a record
_LOOKAHEAD = 8192  # bytes in which an element outside a record must end to be skipped as a whole
_INTERNED_CONTEXTS = 1000
_SLASH = ord("/")


class Record(NamedTuple):
    """The position of a record: `file[start:end]` is all of it, from `<` to `>`."""

    start: int
    end: int
    context: Context
    """the declarations that it needs as a message"""
    complete: bool
    """False if the file ends within it"""


class RecordScanner:
    """Iterates once over the records of a binary file, in order, reading forward only.

    It holds no more than a few times `buffer` bytes, or one tag or document type if that is longer, however
    long records and comments are. It raises a RecordError where the bounds of records become unclear. If the
    file ends within a record, that is the last one, and not complete.
    """

    def __init__(self, element: str, file: BinaryIO, *, buffer: int = 1 << 20) -> None:
        if not element or _INVALID_NAME.search(element):
            hint = "write it as the file does, with its prefix if it has one: article, atom:entry"
            raise RecordError(f"{element!r} is not the name of an element", hint=hint)
        if buffer < 1:
            raise ArgumentError("the buffer must have at least one byte")
        self._element = element
        self._window = Window(file, buffer)
        self._interned: dict[Context, Context] = {}
        self._byte_order_mark = self._declaration = self._doctype = b""
        self._encoding = "utf-8"
        self._indexed = b"", b""  # the bytes of the window and the name for which `_index` is valid
        self._start_document()
        self._records = self._scan()

    def __iter__(self) -> Iterator[Record]:
        return self._records

    def _scan(self) -> Iterator[Record]:
        window = self._window
        check_width(window.ahead(4))
        if window.data.startswith(_BYTE_ORDER_MARK):
            window.pos = len(_BYTE_ORDER_MARK)
            self._byte_order_mark = _BYTE_ORDER_MARK
        while True:
            tag = self._outside.match(window.data, window.pos)
            if tag is None:
                if self._skip_other():
                    continue
                break
            if tag.lastindex == OUTSIDE_RECORD:
                window.pos = tag.start(1) - 1
                single = window.data[tag.end() - 2] == _SLASH
                run = None if single else self._current_index().find_run(window.pos)
                if run is None:
                    yield self._record(tag)
                else:
                    base, context = window.offset_of(0), self._context()
                    starts, ends = run
                    window.pos = ends[-1]
                    if base:
                        starts, ends = [base + start for start in starts], [base + end for end in ends]
                    yield from map(Record._make, zip(starts, ends, repeat(context), repeat(True)))
            elif tag.lastindex == OUTSIDE_CLOSE:
                self._scope.close(tag[OUTSIDE_CLOSE])
                window.pos = tag.end()
            else:
                self._open(tag)
        if self._start.match(window.data, window.pos):
            yield Record(window.offset, window.offset_of(len(window.data)), self._context(), False)

    # -- outside of records ----------------------------------------------------------------------------

    def _open(self, tag: re.Match[bytes]) -> None:
        """Enter the element of a start tag that is not a record's, or skip all of it."""
        window = self._window
        data, end, name = window.data, tag.end(), tag[2]
        window.pos = end
        if data[end - 2] == _SLASH:
            return
        close = data.find(b"</%b>" % name, end, end + _LOOKAHEAD)
        if (
            close >= 0
            and data.find(b"<" + name, end, close) < 0
            and self._current_index().has_none(end, close)
        ):
            window.pos = close + len(name) + 3
            return
        if len(self._scope) == _MAX_DEPTH:
            hint = f"choose an element that contains them, such as {name.decode('utf-8', 'replace')!r}"
            raise RecordError(f"elements are nested more than {_MAX_DEPTH:,} deep", window.offset, hint)
        self._scope.open(name, data, tag.end(2))

    def _skip_other(self) -> bool:
        """Skip anything but a tag, or read a tag into the window; return False at the end of the file."""
        window = self._window
        if not window.skip_to(b"<"):
            return False
        head = window.ahead(len(b"<![CDATA["))
        if head.startswith(b"<!DOCTYPE"):
            return self._read_doctype()
        if DECLARATION_START.match(head):
            return self._read_declaration()
        for opening, closing in ((b"<!--", b"-->"), (b"<![CDATA[", b"]]>"), (b"<?", b"?>")):
            if head.startswith(opening):
                window.pos += len(opening)
                return window.skip_past(closing)
        if TAG_START.match(head):
            return self._read_tag()
        window.pos += 1  # a stray `<`
        return True

    def _read_tag(self) -> bool:
        """Read until the window has the whole tag at its position; return False if the file ends in it."""
        window = self._window
        while not self._outside.match(window.data, window.pos):
            if BROKEN_TAG.match(window.data, window.pos):
                hint = "write it as &lt; in text and in attribute values"
                raise RecordError("a tag with '<' in it", window.offset, hint)
            if not window.more_of("a tag"):
                return False
        return True

    # -- the beginning of a document -------------------------------------------------------------------

    def _read_declaration(self) -> bool:
        """Read an XML declaration, which begins a document, whatever elements are open."""
        window = self._window
        while (end := window.data.find(b"?>", window.pos)) < 0:
            if not window.more_of("an XML declaration"):
                return False
        self._declaration = window.data[window.pos : end + 2]
        self._doctype = b""
        self._encoding = declared_encoding(self._declaration, window.offset)
        window.pos = end + 2
        self._start_document()
        return True

    def _read_doctype(self) -> bool:
        """Read a document type."""
        window = self._window
        while not (found := DOCTYPE.match(window.data, window.pos)):
            if not window.more_of("a document type"):
                return False
        # The document type names the root of the message, which is the record.
        self._doctype = found[1] + self._name + found[2]
        window.pos = found.end()
        self._start_document()
        return True

    def _start_document(self) -> None:
        """Reset the scanner to the beginning of a document."""
        try:
            self._name = self._element.encode(self._encoding)
        except UnicodeEncodeError:
            reason = f"the name {self._element!r} cannot be written in {self._encoding}"
            raise RecordError(reason, self._window.offset) from None
        self._outside, self._inside = compile_outside(self._name), compile_inside(self._name)
        self._start = compile_start(self._name)
        defaults = default_declarations(self._doctype, self._encoding)
        self._own: Declarations = defaults.get(self._name, {})
        self._scope = Scope(defaults)
        self._last_context: tuple[Declarations, Context] | None = None

    def _context(self) -> Context:
        """Return the context of a record at the position."""
        namespaces = self._scope.namespaces
        if self._last_context is not None and self._last_context[0] is namespaces:
            return self._last_context[1]
        # A default declaration of the document type on the record holds in the message, too.
        needed = tuple(sorted(pair for pair in namespaces.items() if pair[0] not in self._own))
        context = Context(self._byte_order_mark + self._declaration + self._doctype, self._name, needed)
        if len(self._interned) == _INTERNED_CONTEXTS:
            self._interned.clear()
        context = self._interned.setdefault(context, context)
        self._last_context = namespaces, context
        return context

    # -- records ---------------------------------------------------------------------------------------

    def _current_index(self) -> PlainRecordIndex:
        """Return the index of plain records in the window."""
        data, name = self._indexed
        if data is not self._window.data or name != self._name:
            self._indexed = self._window.data, self._name
            self._index = PlainRecordIndex(*self._indexed)
        return self._index

    def _record(self, tag: re.Match[bytes]) -> Record:
        """Return the record that begins with this tag, after parsing it to its end."""
        window = self._window
        start = window.offset
        window.pos = tag.end()
        complete = window.data[tag.end() - 2] == _SLASH or self._skip_record()
        return Record(start, window.offset, self._context(), complete)

    def _skip_record(self) -> bool:
        """Move from a record's start tag to its end; return False if the file ends before it."""
        window = self._window
        depth = 1
        while depth:
            found = self._inside.search(window.data, window.pos)
            if found is None:
                # The last bytes may be the beginning of a match.
                window.pos = max(window.pos, len(window.data) - max(len(self._name) + 2, len(b"<![CDATA[")))
                whole = window.more()
            else:
                window.pos = found.end()
                opening = found[0]
                if opening == b"<!--":
                    whole = window.skip_past(b"-->")
                elif opening == b"<![CDATA[":
                    whole = window.skip_past(b"]]>")
                elif opening == b"<?":
                    whole = window.skip_past(b"?>")
                elif opening[1] == _SLASH:
                    whole = window.skip_past(b">")
                    depth -= 1
                else:
                    window.pos = found.start()
                    whole = self._read_tag()
                    tag = self._outside.match(window.data, window.pos)
                    if tag:
                        window.pos = tag.end()
                        depth += window.data[tag.end() - 2] != _SLASH
            if not whole:
                window.pos = len(window.data)
                return False
        return True
