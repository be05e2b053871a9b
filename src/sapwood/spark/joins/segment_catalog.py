"""The segments of the message log, as the driver knows them: the watermark, and which are still needed."""

from __future__ import annotations

import json
import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import floor, inf
from typing import Any
from uuid import uuid4

import pyarrow as pa

from sapwood.join.state.portable_state import EquatedVariables
from sapwood.spark.io.file_system import (
    list_names,
    make_folder,
    open_file,
    remove_file,
    replace_file,
)
from sapwood.spark.joins.message_log import POSITION, LogFile, LogTable, LogWriter
from sapwood.spark.joins.schema import ExtractionSummary, deserialize_ways
from sapwood.spark.pipeline.batch_log import CheckpointError
from sapwood.spark.pipeline.config import JoinConfig

_log = logging.getLogger(__name__)
_MERGED = 16
"""small segments of one level that are merged"""
_SMALL_BYTES = 16 << 20
"""bytes of a segment that is small enough to be merged by the driver"""
_CHECKED = 50
"""batches after which files are looked for that no segment has"""
_COLUMNS = "columns.json"
Equated = Mapping[bytes, EquatedVariables]


@dataclass(frozen=True, slots=True)
class Segment:
    """The messages of one batch, or of several that follow each other."""

    first: int
    """number of its first batch"""
    last: int
    watermark: int | None
    """that of its last batch, in milliseconds; None if there was none"""
    latest: list[int | None]
    """by source, the latest event time of all batches so far, in milliseconds"""
    end: int
    """the position after its last message"""
    files: list[LogFile]
    variables: dict[str, int]
    """by variable, the latest time of a message with a value of it, in milliseconds"""
    references: list[int]
    """batches with messages that chains in it consist of"""
    level: int = 0
    """how often it was merged"""

    @property
    def name(self) -> str:
        return f"{self.first}-{self.last}.json"

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def has_any(self, batches: Iterable[int]) -> bool:
        """Whether it has the messages of any of some batches."""
        return any(self.first <= batch <= self.last for batch in batches)

    def until(self, equated: Equated) -> float:
        """The latest time of a message that any of its messages can be joined with."""
        return max(
            (_until(bytes.fromhex(v), time, equated) for v, time in self.variables.items()), default=-inf
        )


def _until(variable: bytes, time: float, equated: Equated) -> float:
    found = equated.get(variable)
    return time + found.wait * 1000 if found is not None else -inf


class SegmentCatalog:
    """All segments of a message log. Only one process changes them: the driver of the pipeline."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.messages = f"{folder}/messages"
        self._descriptions = f"{folder}/segments"
        make_folder(self.messages)
        make_folder(self._descriptions)
        self._segments = self._read()
        self._unknown: set[str] = set()
        self._next_check = _CHECKED

    def reload(self) -> None:
        """Read the segments that are there now, and remove files that no segment has; only the process that
        has locked the checkpoint may do so."""
        self._segments = self._read()
        self._remove_orphans()

    def check_columns(self, columns: Mapping[str, str]) -> None:
        """Record the names and types of the messages' columns, or raise CheckpointError if the messages in
        the log have others."""
        path = f"{self.folder}/{_COLUMNS}"
        recorded = [list(pair) for pair in columns.items()]
        if _COLUMNS not in list_names(self.folder):
            replace_file(path, json.dumps(recorded).encode())
            return
        with open_file(path) as file:
            known = json.loads(file.read())
        if known != recorded:
            raise CheckpointError(
                f"the messages in the state of joins have the columns {_list_columns(known)}, and those of "
                f"the sources now {_list_columns(recorded)}: undo the change of 'keep' or of other columns "
                "of a source, or start with a new checkpoint"
            )

    def _read(self) -> list[Segment]:
        found = [self._parse(name) for name in list_names(self._descriptions) if name.endswith(".json")]
        # a merged segment comes before those that it replaces, which a crash may have left
        found.sort(key=lambda segment: (segment.first, -segment.last))
        segments: list[Segment] = []
        for segment in found:
            if not segments or segment.first > segments[-1].last:
                segments.append(segment)
            else:
                remove_file(f"{self._descriptions}/{segment.name}")
        return segments

    def _parse(self, name: str) -> Segment:
        path = f"{self._descriptions}/{name}"
        with open_file(path) as file:
            text = file.read()
        try:
            record = json.loads(text)
            record["files"] = [LogFile(f"{self.messages}/{path}", *rest) for path, *rest in record["files"]]
            return Segment(**record)
        except (ValueError, TypeError, KeyError):
            raise CheckpointError(
                f"{path}, which describes messages that joins need, is damaged: restore it from a copy, or "
                "start with a new checkpoint"
            ) from None

    def _write(self, segment: Segment) -> None:
        record = asdict(segment)
        record["files"] = [(file.path.rpartition("/")[2], *file[1:]) for file in segment.files]
        replace_file(f"{self._descriptions}/{segment.name}", json.dumps(record).encode())

    def _list_unknown(self) -> set[str]:
        """The names of files that no segment has."""
        known = {file.path.rpartition("/")[2] for segment in self._segments for file in segment.files}
        return set(list_names(self.messages)) - known

    def _remove_orphans(self) -> None:
        """Remove files of tasks that failed, or of a run that ended before it described them."""
        for name in self._list_unknown():
            remove_file(f"{self.messages}/{name}")

    def _remove_old_orphans(self, batch: int) -> None:
        """Remove files that no segment has now, nor had at the last check, batches ago: tasks that ran twice
        have left them."""
        if batch < self._next_check:
            return
        unknown = self._list_unknown()
        for name in unknown & self._unknown:
            remove_file(f"{self.messages}/{name}")
        self._unknown = unknown - self._unknown
        self._next_check = batch + _CHECKED

    def _remove(self, segment: Segment) -> None:
        remove_file(f"{self._descriptions}/{segment.name}")
        for file in segment.files:
            remove_file(file.path)

    # -- a batch ---------------------------------------------------------------------------------------

    def begin(self, batch: int, settings: JoinConfig) -> int | None:
        """Begin a batch, or begin it again: return its watermark in milliseconds, None if there is none."""
        while self._segments and self._segments[-1].last >= batch:
            stale = self._segments.pop()
            if stale.first < batch:
                raise CheckpointError(
                    f"{self.folder}: batch {batch} cannot be repeated, because its messages are merged with "
                    "those of other batches; restore the folder from a copy, or start with a new checkpoint"
                )
            self._remove(stale)
        if not self._segments:
            return None
        before = self._segments[-1]
        latest = [time for time in before.latest if time is not None]
        if not latest or (settings.wait_for == "slowest" and len(latest) < len(before.latest)):
            return before.watermark
        newest = min(latest) if settings.wait_for == "slowest" else max(latest)
        found = newest - round(settings.lateness_seconds * 1000)
        if before.watermark is not None:
            found = max(found, before.watermark)
        return found if found > 0 else None  # before 1970, nothing is late and nothing is evicted

    @property
    def end(self) -> int:
        """The position after the last message."""
        return self._segments[-1].end if self._segments else 0

    @property
    def files(self) -> tuple[LogFile, ...]:
        """The files of all segments, in the order of their positions."""
        return tuple(file for segment in self._segments for file in segment.files)

    def commit(
        self, batch: int, watermark: int | None, sources: int, summaries: Iterable[ExtractionSummary]
    ) -> Segment:
        """Add the segment of a batch, which then belongs to the state of all later ones."""
        latest: list[int | None] = [None] * sources
        if self._segments:
            latest = self._segments[-1].latest[:]
        files: list[LogFile] = []
        variables: dict[str, int] = {}
        references: set[int] = set()
        end = self.end
        for summary in sorted(summaries, key=lambda summary: summary.file or ""):
            if summary.latest is not None:
                time = floor(summary.latest * 1000)
                known = latest[summary.source]
                latest[summary.source] = time if known is None else max(known, time)
            for variable, time in summary.variables:
                key = variable.hex()
                variables[key] = max(time, variables.get(key, time))
            references.update(self._batches_of(summary.references))
            if summary.file is not None:
                path = f"{self.messages}/{summary.file}"
                files.append(LogFile(path, end, end + summary.rows, summary.size))
                end += summary.rows
        segment = Segment(batch, batch, watermark, latest, end, files, variables, sorted(references))
        self._write(segment)
        self._segments.append(segment)
        return segment

    def _batches_of(self, positions: Sequence[int]) -> set[int]:
        """The batches, each the first of its segment, that messages at some positions came in."""
        ends = [segment.end for segment in self._segments]
        numbers = {bisect_right(ends, position) for position in positions}
        return {self._segments[number].first for number in numbers if number < len(ends)}

    # -- vacuum ----------------------------------------------------------------------------------------

    def vacuum(self, watermark: float, equated: Equated) -> None:
        """Remove segments that nothing at or after the watermark can reach, and merge small ones; never the
        last one, which may be repeated. `equated` are the variables of the present queries."""
        *others, last = self._segments
        live = {segment.first for segment in others if segment.until(equated) >= watermark}
        chains = [segment.references for segment in self._segments if segment.first in live | {last.first}]
        referenced = {batch for references in chains for batch in references}
        retained: list[Segment] = []
        for segment in others:
            if segment.first in live or segment.has_any(referenced):
                retained.append(segment)
            else:
                self._remove(segment)
        if len(retained) < len(others):
            _log.debug(
                "%d of %d segments of the message log removed", len(others) - len(retained), len(others)
            )
        self._segments = [*retained, last]
        self._merge(watermark, equated, referenced)
        self._remove_old_orphans(last.last)

    def _merge(self, watermark: float, equated: Equated, referenced: set[int]) -> None:
        """Merge the first small segments of a level that follow each other, if there are enough."""
        run: list[Segment] = []
        for segment in self._segments[:-1]:
            if (run and segment.level != run[-1].level) or segment.bytes > _SMALL_BYTES:
                run = []
            if segment.bytes <= _SMALL_BYTES:
                run.append(segment)
            if len(run) == _MERGED:
                merged = self._merge_run(run, watermark, equated, referenced)
                place = self._segments.index(run[0])
                self._segments[place : place + len(run)] = [merged]
                return

    def _merge_run(
        self, run: Sequence[Segment], watermark: float, equated: Equated, referenced: set[int]
    ) -> Segment:
        path = f"{self.messages}/merged-{uuid4().hex}.arrow"
        writer: LogWriter | None = None
        variables: dict[str, int] = {}
        first = end = run[0].files[0].first if run[0].files else run[0].end
        for segment in run:
            keep_all = segment.has_any(referenced)
            for file in segment.files:
                for batch, positions in LogTable(file).iter_batches():
                    kept = []
                    for row, (ways, time) in enumerate(
                        zip(batch.column("ways").to_pylist(), batch.column("time").to_pylist(), strict=True)
                    ):
                        of_row = _row_variables(ways)
                        until = max((_until(v, time * 1000, equated) for v in of_row), default=-inf)
                        if keep_all or until >= watermark:
                            kept.append(row)
                            for variable in of_row:
                                key, at = variable.hex(), floor(time * 1000)
                                variables[key] = max(at, variables.get(key, at))
                    rows = _with_positions(batch, positions).take(pa.array(kept, pa.int64()))
                    if writer is None:
                        writer = LogWriter(path, rows.schema)
                    writer.write(rows)
                    end = file.end
        if writer is not None:
            writer.close()
        files = [LogFile(path, first, end, writer.bytes)] if writer is not None and writer.rows else []
        merged = replace(
            run[-1],
            first=run[0].first,
            files=files,
            variables=variables,
            references=sorted({batch for segment in run for batch in segment.references}),
            level=run[0].level + 1,
        )
        self._write(merged)
        for segment in run:
            self._remove(segment)
        rows_before = sum(file.end - file.first for segment in run for file in segment.files)
        _log.debug("%d segments merged: %s of %d rows", len(run), writer and writer.rows, rows_before)
        return merged


def _list_columns(columns: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{name} {type}" for name, type in columns)


def _row_variables(ways: bytes) -> set[bytes]:
    """The variables that have values in a row of the log."""
    return {value[0] for way in deserialize_ways(ways) for value in way} if ways else set()


def _with_positions(batch: pa.RecordBatch, positions: Any) -> pa.RecordBatch:
    if POSITION in batch.schema.names:
        return batch
    return batch.append_column(POSITION, pa.array(positions, pa.int64()))
