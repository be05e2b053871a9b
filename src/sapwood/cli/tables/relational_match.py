"""`sapwood match --engine relational`: queries of a file or a store as tables, messages in batches."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sapwood import Limits, MessageError, QueryError
from sapwood.cli.common.console import fail, make_progress, report
from sapwood.cli.common.interruption import InterruptHandler
from sapwood.cli.common.query_warnings import QueryWarnings
from sapwood.cli.common.relational_options import (
    BATCH,
    PlanName,
    open_tables,
    require_duckdb,
    synchronize_tables,
    tables_path,
)
from sapwood.cli.common.stored_filters import open_store, report_skipped
from sapwood.cli.match import Answered, Answers
from sapwood.input_files import STDIN, FileError, NamedMessage, NamedQuery, read_queries

if TYPE_CHECKING:
    from sapwood.relational import RelationalMatcher

_CHUNK = 50_000
"""queries in one transaction"""


@dataclass(frozen=True, slots=True)
class RelationalOptions:
    """The options of the relational engine; None is the default."""

    tables: Path | None = None
    plan: PlanName | None = None
    memory: str | None = None
    batch: int | None = None


@contextmanager
def load_relational(
    queries: str | None,
    store: str | None,
    tenant: str,
    namespaces: dict[str, str],
    limits: Limits,
    count: bool,
    setting: RelationalOptions,
) -> Iterator[tuple[int, Answers]]:
    """Load the queries of a file or a store; yield how many were refused, and a function that matches
    messages.
    """
    with require_duckdb("sapwood match --engine relational"), ExitStack() as stack:
        interruption = stack.enter_context(InterruptHandler())
        if store is not None:
            file = tables_path(store, setting.tables, tenant)
            with open_store(store, tenant=tenant) as source:
                matcher = stack.enter_context(open_tables(file, setting.plan, setting.memory, limits))
                _, refused = synchronize_tables(matcher, source, interruption)
                report_skipped(source)
            read: Callable[[str], Hashable] = str
        else:
            assert queries is not None
            folder = stack.enter_context(TemporaryDirectory(prefix="sapwood-"))
            file = setting.tables or Path(folder) / "tables"
            matcher = stack.enter_context(open_tables(file, setting.plan, setting.memory, limits))
            refused = _load(matcher, file, queries, namespaces, interruption)
            read = decode_id

        def answers(messages: Iterable[NamedMessage]) -> Iterator[Answered]:
            for name, found in _match_each(matcher, messages, setting.batch or BATCH, interruption):
                interruption.check()
                if isinstance(found, MessageError):
                    yield name, found, ()
                else:
                    answer = {"count": len(found)} if count else {"matches": [*map(read, found)]}
                    failures = [replace(f, subscription=read(str(f.subscription))) for f in found.undecided]
                    yield name, answer, failures

        yield refused, answers


def _match_each(
    matcher: RelationalMatcher, messages: Iterable[NamedMessage], batch: int, interruption: InterruptHandler
) -> Iterator[tuple[str, Any]]:
    """Iterate over names and answers; an unreadable message ends the iteration after those before it are
    answered.
    """
    names: deque[str] = deque()
    failure: list[FileError] = []
    rest = iter(messages)

    def bodies() -> Iterator[bytes]:
        while True:
            try:
                with interruption.allowed():  # the next one may be long in coming
                    message = next(rest, None)
            except FileError as error:
                failure.append(error)
                return
            if message is None:
                return
            names.append(message.name)
            yield message.body

    for answer in matcher.match_each(bodies(), batch):
        yield names.popleft(), answer
    if failure:
        raise failure[0]


# -- queries of a file -----------------------------------------------------------------------------------


def _load(
    matcher: RelationalMatcher,
    file: Path,
    path: str,
    namespaces: dict[str, str],
    interruption: InterruptHandler,
) -> int:
    """Replace the subscriptions of the tables by the queries of a file; return how many were refused."""
    from sapwood.relational.storage.store_sync import clear_tables, read_sync_state

    origin = path if path == STDIN else str(Path(path).resolve())
    before = read_sync_state(matcher).store
    if before != origin and len(matcher):
        whose = f"those of {before}" if before is not None else "subscriptions that come from elsewhere"
        fail(f"{file} holds {whose}; give another file with --tables, or delete it")
    clear_tables(matcher, {"store": origin})
    matcher.declare(namespaces)
    refused = 0
    query_warnings = QueryWarnings({}, namespaces)
    rest = read_queries(path)
    with make_progress(rate=True) as progress:
        task = progress.add_task("loading queries", total=None)
        while some := _read(rest, interruption):
            lines = _Lines(some)
            for query in some:
                query_warnings.check(query.place, query.text)
            pairs = [(encode_id(query.id), query.text) for query in some]
            matcher.catalog.apply_changes(put=pairs, on_error=lines.refuse, replace=False)
            refused += lines.report()
            progress.advance(task, len(some))
        query_warnings.finish()
    return refused


def _read(rest: Iterator[NamedQuery], interruption: InterruptHandler) -> list[NamedQuery]:
    with interruption.allowed():
        return list(islice(rest, _CHUNK))


@dataclass(slots=True)
class _Lines:
    """The lines of a chunk, whose refusals are reported in the order of the file once the chunk is stored."""

    queries: list[NamedQuery]
    refused: list[tuple[int, str, str]] = field(default_factory=list)
    _by_id: dict[str, list[NamedQuery]] = field(default_factory=dict)

    def refuse(self, id: Hashable, error: ValueError) -> None:
        if not self._by_id:
            for query in self.queries:
                self._by_id.setdefault(encode_id(query.id), []).append(query)
        here = self._by_id[str(id)]
        # of several lines with one id, the one that is no query, or else one that comes too late
        wrong = [i for i, q in enumerate(here) if isinstance(error, QueryError) and q.text == error.query]
        query = here.pop(wrong[0] if wrong else -1)
        self.refused.append((query.line, query.place, str(error)))

    def report(self) -> int:
        """Report the refused queries in the order of lines, and return their number."""
        for _, place, reason in sorted(self.refused):
            report(place, reason)
        return len(self.refused)


# Tables hold texts, but a file's ids may be numbers, too: 5 is not "5".
_NOT_AS_IT_IS = re.compile(r'-?[0-9]+\Z|"|.*[\0\ud800-\udfff]', re.DOTALL)


def encode_id(id: Hashable) -> str:
    """Return the id as the tables store it: texts that look like numbers are quoted."""
    return json.dumps(id) if isinstance(id, int) or _NOT_AS_IT_IS.match(str(id)) else str(id)


def decode_id(stored: str) -> Hashable:
    """Return the id that the tables store as this text."""
    found: Hashable = json.loads(stored) if _NOT_AS_IT_IS.match(stored) else stored
    return found
