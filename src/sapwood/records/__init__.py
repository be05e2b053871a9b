"""The records of one huge XML file, each found exactly and made a message of its own.

    with open("dblp.xml", "rb") as file:
        for record in RecordScanner("article", file):
            ...                       # where it is; read it, and put message(record.context, body) together

One process scans and others read: `ranges` makes parcels of neighbouring records, which can be pickled, and
`Range.messages` reads one from the file.

A record is an outermost element whose name, as written with its prefix, is the one asked for; one inside
another belongs to it. What a record needs from outside itself goes with it: the XML declaration, the document
type with its entities, and the namespaces that its ancestors declare. What an ancestor says with `xml:lang`,
`xml:space` or `xml:base` does not. A record that only an entity's expansion would make is not in the file,
and not found.

The file is taken to be well-formed. If it is not, records are found as long as it is clear where they are;
otherwise a RecordError says where it ceased to be. A file may hold several documents, one after the other.
"""

from sapwood.records.record_context import Context, message
from sapwood.records.record_ranges import Range, ranges
from sapwood.records.record_scanner import Record, RecordScanner

__all__ = ["Context", "Range", "Record", "RecordScanner", "message", "ranges"]
