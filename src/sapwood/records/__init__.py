"""Splits one huge XML file into records, each of which becomes a message.

    with open("dblp.xml", "rb") as file:
        for record in RecordScanner("article", file):
            ...  # read the bytes from record.start to record.end: message(record.context, body)

One process scans and others read: `ranges` groups neighbouring records into ranges, which can be pickled, and
`Range.messages` reads one range from the file.

A record is an outermost element of the given name, as written with its prefix; one inside another is part of
it. Its context becomes part of the message: the XML declaration, the document type with its entities, and the
namespaces that its ancestors declare, but not their `xml:lang`, `xml:space` or `xml:base`. A record that only
exists in the expansion of an entity is not found.

The file is assumed to be well-formed. If it is not, records are found as long as their bounds are clear;
otherwise a RecordError names the position. A file may hold several documents, one after the other.
"""

from sapwood.records.record_context import Context, message
from sapwood.records.record_ranges import Range, ranges
from sapwood.records.record_scanner import Record, RecordScanner

__all__ = ["Context", "Range", "Record", "RecordScanner", "message", "ranges"]
