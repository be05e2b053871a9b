"""The subscriptions of a set of tables: how they come, go and are filed, each change a transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import pyarrow as pa

from sapwood.engine.bulk_load import OnError, pause_garbage_collection
from sapwood.lang.namespaces import Namespaces, declare
from sapwood.relational.paths.path_catalog import Paths, Uses
from sapwood.relational.paths.tag_paths import Tags
from sapwood.relational.rules.access_structures import Reach, reach_of
from sapwood.relational.rules.rule_compiler import CompiledQuery, QueryCompiler
from sapwood.relational.sql.cost_model import Choice, choose, measured, measured_in
from sapwood.relational.sql.match_plan import Extents, Plan
from sapwood.relational.storage.duckdb_database import Connection, Tables
from sapwood.relational.storage.subscription_load import load, refile, unload

Notes = Callable[[], Mapping[str, str | None]]
"""Tells what is to be noted by name; None takes a note away."""


class SubscriptionCatalog:
    """The subscriptions, the paths they ask for, and the tag paths that these match."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.namespaces = self._declared()
        self._paths = Paths(tables)
        self.tags = Tags(tables)
        self._compiler = QueryCompiler(self._paths, self.namespaces)
        self._extents: Extents | None = None

    def _declared(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._tables.meta("namespaces") or "{}")
        return found

    def declare(self, namespaces: Namespaces) -> None:
        """Declares further prefixes for queries to come; ValueError for one that is bound already."""
        with self._tables.lock:
            known = dict(self.namespaces)
            queries = self._tables.connect().value("SELECT count(*) FROM subscription")
            declare(known, namespaces, int(queries))
            if known != self.namespaces:
                with self._tables.changing():
                    self._tables.set_meta({"namespaces": json.dumps(known)})
                self.namespaces.update(known)

    def reload(self) -> None:
        """Takes over what the tables have by now."""
        self._extents = None
        declared = self._declared()
        self.namespaces.clear()
        self.namespaces.update(declared)
        self._paths.forget_new()
        self._compiler.forget()
        self.tags.reload()

    def change(
        self,
        removed: Sequence[str] = (),
        put: Sequence[tuple[str, str]] = (),
        on_error: OnError | None = None,
        replace: bool = True,
        note: Notes = dict,
        places: Mapping[str, int] | None = None,
    ) -> None:
        """Subscriptions end and others come, all in one transaction; what `note` tells in the end is put on
        record with it.

        Those of `put` that are there already are replaced, or refused. They keep their places in the order,
        and others follow all that ever were, unless `places` says which they have.
        """
        with self._tables.lock, pause_garbage_collection(lambda: False):
            self._tables.check_idle()
            self._extents = None
            try:
                self._change(removed, put, on_error, replace, note, places or {})
            except BaseException:
                self.reload()
                raise
            self._paths.written()

    def _change(
        self,
        removed: Sequence[str],
        put: Sequence[tuple[str, str]],
        on_error: OnError | None,
        replace: bool,
        note: Notes,
        places: Mapping[str, int],
    ) -> None:
        there = self.numbers([*removed, *(id for id, _ in put)])
        with self._tables.changing() as connection:
            accepted = self._accepted(put, {} if replace else there, on_error)
            leaving = [there[id] for id in (*removed, *accepted) if id in there]
            if leaving:
                unload(connection, pa.table({"number": pa.array(leaving, pa.int64())}))
            if accepted:
                self._enter(connection, accepted, {**there, **places})
            self._tables.set_meta(note())

    def _accepted(
        self, put: Sequence[tuple[str, str]], taken: Mapping[str, int], on_error: OnError | None
    ) -> dict[str, CompiledQuery]:
        """The queries that can be subscribed, compiled, by id."""
        accepted: dict[str, CompiledQuery] = {}
        for id, text in put:
            try:
                if not _is_id(id):
                    raise ValueError(f"an id in tables is a string of characters, not {id!r}")
                if id in taken or id in accepted:
                    raise ValueError(f"{id!r} is subscribed already")
                accepted[id] = self._compiler.compile(text)
            except ValueError as error:
                if on_error is None:
                    error.add_note(f"subscription {id!r}")
                    raise
                on_error(id, error)
        return accepted

    def _enter(
        self, connection: Connection, queries: Mapping[str, CompiledQuery], places: Mapping[str, int]
    ) -> None:
        compiled = list(queries.values())
        plan = _plan(connection)
        if plan is None:
            plan = choose(measured_in(compiled)).plan
            self._tables.set_meta({"plan": plan.value})
        numbers, reach = load(self._tables, connection, self._paths, plan, compiled, self._on_paths)
        self._extend(connection, reach)
        new = [id for id in queries if id not in places]
        first = self._tables.take("subscription", len(new))
        places = {**places, **dict(zip(new, range(first, first + len(new)), strict=True))}
        beyond = max(places[id] for id in queries) + 1 - self._tables.upcoming("subscription")
        if beyond > 0:  # so that what comes next follows them
            self._tables.take("subscription", beyond)
        connection.insert(
            "subscription",
            pa.table(
                {
                    "number": pa.array([places[id] for id in queries], pa.int64()),
                    "id": pa.array(list(queries), pa.string()),
                    "query": pa.array(numbers, pa.int64()),
                }
            ),
        )

    def _on_paths(self, connection: Connection, changed: set[int]) -> None:
        self.tags.add_paths(connection, self._paths.new_paths, changed)

    def numbers(self, ids: Sequence[str]) -> dict[str, int]:
        """The numbers of those that are subscribed."""
        connection = self._tables.connect()
        asked = pa.table({"id": pa.array(list(filter(_is_id, ids)), pa.string())})
        with connection.given(asked=asked):
            rows = connection.rows(
                "SELECT s.id, s.number FROM subscription s SEMI JOIN asked a ON a.id = s.id"
            )
        return dict(rows)

    # -- plans -----------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """The plan in use; None as long as there are no subscriptions."""
        return _plan(self._tables.connect())

    def use(self, plan: Plan) -> None:
        """Changes the plan: the tables that it needs are made anew, all or nothing."""
        with self._tables.lock:
            if _plan(self._tables.writer) is plan:
                return
            self._extents = None
            with self._tables.changing() as connection:
                reach = refile(self._tables, connection, plan)
                self._tables.set_meta({"plan": plan.value, "reach": json.dumps(asdict(reach))})

    def shrink(self) -> None:
        """Notes how far the tables go now, which may be less far than they did."""
        try:
            with self._tables.changing() as connection:
                self._tables.set_meta({"reach": json.dumps(asdict(reach_of(connection)))})
        finally:
            self.reload()

    def extents(self, connection: Connection) -> Extents:
        """How far the tables go; in the caller's keeping of their lock."""
        if self._extents is None:
            self._extents = read_extents(connection)
        return self._extents

    def explain(self) -> Choice:
        """What each plan would cost, by what is known of the subscriptions, and which is in use."""
        connection = self._tables.connect()
        return choose(measured(connection), _plan(connection))

    def _extend(self, connection: Connection, reach: Reach) -> None:
        before = _reach(connection)
        if before | reach != before:
            self._tables.set_meta({"reach": json.dumps(asdict(before | reach))})


def _is_id(id: object) -> bool:
    """Whether it can be stored: half of a surrogate pair cannot."""
    try:
        return isinstance(id, str) and id.encode() is not None
    except UnicodeEncodeError:
        return False


def _plan(connection: Connection) -> Plan | None:
    found = connection.value("SELECT value FROM meta WHERE name = 'plan'")
    return Plan(found) if found is not None else None


def _reach(connection: Connection) -> Reach:
    found = connection.value("SELECT value FROM meta WHERE name = 'reach'")
    return Reach(**json.loads(found)) if found is not None else Reach()


def read_extents(connection: Connection) -> Extents:
    """How far the tables go, as the connection sees them."""
    reach = _reach(connection)
    ops = frozenset(op for (op,) in connection.rows("SELECT DISTINCT op FROM fact"))
    return Extents(
        plan=_plan(connection) or Plan.UNROLLED,
        fact_ops=ops,
        fact_slots=reach.fact_slots,
        bound_slots=reach.bound_slots,
        fact_levels=reach.fact_levels,
        bound_levels=reach.bound_levels,
        texts=bool(
            connection.value(f"SELECT count(*) FROM linear_path WHERE uses & {_COMPARED} = {_COMPARED}")
        ),
        depth=connection.value("SELECT coalesce(max(depth), 0) FROM shape_part"),
    )


_COMPARED = int(Uses.TEXT | Uses.EXTENT)
