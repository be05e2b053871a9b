"""The spans of the elements in the bytes of a message, found after it was read, and only on demand.

A well-formed message has a `<` nowhere but at markup. If all markup is tags, each with one `>`, then the
elements start at the start tags, in document order, and end at the end tags, in the order in which they
close: a few array operations find them all. With comments, CDATA or a `>` in text, each tag is looked at.
"""

from __future__ import annotations

import re
from xml.parsers import expat

import numpy as np

from sapwood.engine.message.doctype_limits import ignore_external_entities

# Possessive, since backtracking would store every character of a long stretch.
_PROLOG = re.compile(rb"(?:<\?.*?\?>|<!--.*?-->|[^<]++)*+", re.DOTALL)
_MARKUP = re.compile(
    rb"""<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|</[^>]*+>|<(?:[^'">]++|"[^"]*+"|'[^']*+')*+>""", re.DOTALL
)
_LESS, _GREATER, _SLASH, _BANG, _QUESTION = b"<>/!?"

Spans = tuple[list[int], list[int]]


def element_spans(source: bytes, ends: list[int]) -> Spans:
    """Return start and stop of each element of a well-formed message in UTF-8; entry 0 is all of it.

    `ends` has for each element the number after its last descendant's.
    """
    start = _root_start(source)
    return _by_arrays(source, start, ends) or _tag_by_tag(source, start)


def _root_start(source: bytes) -> int:
    if b"<!DOCTYPE" not in source:
        prolog = _PROLOG.match(source)
        assert prolog is not None
        return prolog.end()
    parser = expat.ParserCreate("utf-8")  # which knows where a document type ends
    ignore_external_entities(parser)
    found: list[int] = []

    def start(name: str, attributes: object) -> None:
        found.append(parser.CurrentByteIndex)
        parser.StartElementHandler = None

    parser.StartElementHandler = start
    parser.Parse(source, True)
    return found[0]


def _by_arrays(source: bytes, start: int, ends: list[int]) -> Spans | None:
    """Return the spans, if there are no comments, CDATA and so on, and no `>` but those of tags."""
    characters = np.frombuffer(source, np.uint8)[start:]
    opening = np.flatnonzero(characters == _LESS)
    closing = np.flatnonzero(characters == _GREATER)
    after = characters[opening + 1]
    if len(opening) != len(closing) or ((after == _BANG) | (after == _QUESTION)).any():
        return None
    is_end = after == _SLASH
    is_start = ~is_end
    starts = opening[is_start]
    stops = closing[is_start] + 1
    if len(starts) != len(ends) - 1:
        return None
    spans = np.array(ends[1:], np.int64)
    left_open = np.flatnonzero(characters[stops - 2] != _SLASH)
    # elements close in the order of their last descendants; of those with the same, the inner ones first
    order = np.lexsort((-left_open, spans[left_open]))
    stops[left_open[order]] = closing[is_end] + 1
    return [0, *(starts + start).tolist()], [len(source), *(stops + start).tolist()]


def _tag_by_tag(source: bytes, start: int) -> Spans:
    starts, stops, stack = [0], [len(source)], [0]
    for match in _MARKUP.finditer(source, start):
        kind = source[match.start() + 1]
        if kind == _SLASH:
            stops[stack.pop()] = match.end()
        elif kind != _BANG and kind != _QUESTION:
            if source[match.end() - 2] != _SLASH:
                stack.append(len(starts))
            starts.append(match.start())
            stops.append(match.end())
    return starts, stops
