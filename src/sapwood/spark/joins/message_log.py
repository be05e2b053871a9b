"""The message log of a checkpoint: the messages that joins read, which are all there is of the join state.

    messages/…-….arrow    rows of the log: a file for each task of a batch that extracted any
    segments/N-N.json     a segment: the files of batch N, and the event times by which the next one is late
    segments/M-N.json     the same of several batches, merged

A task writes its file before the batch joins anything, and the driver then describes the files in a segment.
A batch N reads segments before N only, so that it starts from the same state however often it is repeated,
and overwrites its own segment. Positions count all messages of the log; a chain is a row with the positions
of its messages, whose bodies are not copied. Once no query can reach any message of a segment any more, nor
any chain refers to one, the segment is removed; small segments are merged from time to time, without such
messages.

This module has the files themselves, as workers read and write them; `segment_catalog` has the driver's part.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sapwood.join.state.message_state import StoredMessage
from sapwood.spark.io.file_system import local_path, open_file, open_output, remove_file

Positions = NDArray[np.int64]
POSITION = "position"
"""a column of merged files, in which positions are not consecutive"""
_OPEN_FILES = 256
"""files that a worker keeps open; those on the local machine are mapped into memory"""
_OPEN_BYTES = 256 << 20
"""bytes of files on other machines that a worker keeps in memory"""
_CACHE_BYTES = 32 << 20
"""size of the cache of messages, most of which are joined with several others"""
_MESSAGE_BYTES = 700
"""memory that a message takes beside its body, about"""


class LogFile(NamedTuple):
    """A file of the message log."""

    path: str
    first: int
    """the position of its first message"""
    end: int
    """the position after its last message"""
    bytes: int


class LogWriter:
    """Writes a file of the message log, which is there from the first row on."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._file: Any = None
        self._writer: Any = None
        self.rows = 0
        self.bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        if not batch.num_rows:
            return
        if self._writer is None:
            self._file = open_output(self._path)
            self._writer = pa.ipc.new_file(self._file, self._schema)
        self._writer.write_batch(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            self._writer = None

    def abort(self) -> None:
        """Remove the file, unless it is finished."""
        if self._writer is not None:
            self._file.close()
            self._writer = None
            remove_file(self._path)


class LogTable:
    """A file of the message log, opened for reading."""

    def __init__(self, file: LogFile) -> None:
        path = local_path(file.path)
        if path is not None:
            source = pa.memory_map(str(path))
            self.bytes = 0
        else:
            with open_file(file.path) as opened:
                source = pa.BufferReader(opened.read())
            self.bytes = file.bytes
        reader = pa.ipc.open_file(source)
        self.batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self.batches)])
        self.positions: Positions
        if POSITION in reader.schema.names:
            columns = [batch.column(POSITION).to_numpy() for batch in self.batches]
            self.positions = np.concatenate(columns) if columns else np.empty(0, np.int64)
        else:
            self.positions = np.arange(file.first, file.end)

    def locate(self, position: int) -> tuple[pa.RecordBatch, int]:
        """Return the Arrow batch with a message, and its row there."""
        row = int(np.searchsorted(self.positions, position))
        if row >= len(self.positions) or self.positions[row] != position:
            raise LookupError(f"message {position} is not in the log")
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        return self.batches[number], row - int(self._starts[number])

    def iter_batches(self, first: int = 0) -> Iterator[tuple[pa.RecordBatch, Positions]]:
        """Yield Arrow batches with positions of their rows, from a position on."""
        for batch, start in zip(self.batches, self._starts.tolist(), strict=False):
            positions = self.positions[start : start + batch.num_rows]
            skipped = int(np.searchsorted(positions, first))
            if skipped < len(positions):
                yield batch.slice(skipped), positions[skipped:]


class LogReader:
    """Reads messages by position, with caches of files and of messages. The files are those of the batch."""

    def __init__(self) -> None:
        self._files: list[LogFile] = []
        self._ends: Positions = np.empty(0, np.int64)
        self._open: OrderedDict[str, LogTable] = OrderedDict()
        self._open_bytes = 0
        self._messages: OrderedDict[int, StoredMessage] = OrderedDict()
        self._bytes = 0

    def use(self, files: Sequence[LogFile]) -> None:
        """Read from these files from now on, which are in the order of their positions."""
        self._files = list(files)
        self._ends = np.array([file.end for file in files], np.int64)
        current = {file.path for file in files}
        for path in [path for path in self._open if path not in current]:
            self._open_bytes -= self._open.pop(path).bytes

    def open(self, file: LogFile) -> LogTable:
        """Return a file of the log."""
        table = self._open.get(file.path)
        if table is not None:
            self._open.move_to_end(file.path)
            return table
        table = self._open[file.path] = LogTable(file)
        self._open_bytes += table.bytes
        while len(self._open) > 1 and (len(self._open) > _OPEN_FILES or self._open_bytes > _OPEN_BYTES):
            self._open_bytes -= self._open.popitem(last=False)[1].bytes
        return table

    def locate(self, position: int) -> tuple[pa.RecordBatch, int]:
        """Return the Arrow batch with a message, and its row there."""
        number = int(np.searchsorted(self._ends, position, "right"))
        if number == len(self._files):
            raise LookupError(f"message {position} is not in the log")
        return self.open(self._files[number]).locate(position)

    def load(self, position: int) -> StoredMessage:
        """Return a message by its position."""
        known = self._messages.get(position)
        if known is not None:
            self._messages.move_to_end(position)
            return known
        message = _read_message(*self.locate(position), position)
        self._messages[position] = message
        self._bytes += _size(message)
        while self._bytes > _CACHE_BYTES and len(self._messages) > 1:
            self._bytes -= _size(self._messages.popitem(last=False)[1])
        return message


def _read_message(batch: pa.RecordBatch, row: int, position: int) -> StoredMessage:
    """Return the message in a row of the log."""
    return StoredMessage(
        batch.column(0)[row].as_py(),
        batch.column("stream")[row].as_py(),
        batch.column("time")[row].as_py(),
        batch.column("version")[row].as_py(),
        batch.column("body")[row].as_py(),
        batch.column("encoding")[row].as_py(),
        position,
    )


def _size(message: StoredMessage) -> int:
    return _MESSAGE_BYTES + len(message.data)


class LoggedRecords:
    """The messages of the items of a state as positions in the log, loaded when they are read."""

    def __init__(self, reader: LogReader, positions: Sequence[int | tuple[int, ...]] = ()) -> None:
        self._reader = reader
        self._positions = list(positions)

    def append(self, records: tuple[StoredMessage, ...]) -> None:
        """Add the messages of the next item."""
        positions = [record.arrival for record in records]
        self._positions.append(positions[0] if len(positions) == 1 else tuple(positions))

    def __getitem__(self, item: int) -> tuple[StoredMessage, ...]:
        positions = self._positions[item]
        load = self._reader.load
        return (load(positions),) if isinstance(positions, int) else tuple([load(p) for p in positions])

    def __len__(self) -> int:
        return len(self._positions)

    def retain(self, items: Sequence[int]) -> LoggedRecords:
        """Return the records of some items only."""
        return LoggedRecords(self._reader, [self._positions[item] for item in items])
