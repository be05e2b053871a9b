"""The catalog of subscriptions in a set of tables; every change is one transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from sapwood.engine.bulk_load import OnError, pause_garbage_collection
from sapwood.errors import ArgumentError
from sapwood.lang.namespaces import Namespaces, declare
from sapwood.relational.paths.path_catalog import PathCatalog, Uses
from sapwood.relational.paths.tag_paths import TagPathCatalog
from sapwood.relational.rules.access_structures import measure_structure
from sapwood.relational.rules.rule_compiler import CompiledQuery, QueryCompiler
from sapwood.relational.sql.cost_model import Choice, choose_plan, estimate_statistics, read_statistics
from sapwood.relational.sql.match_plan import Plan, PlanParameters, StructureSize
from sapwood.relational.storage.duckdb_database import Connection, DuckDBDatabase
from sapwood.relational.storage.subscription_load import (
    delete_subscriptions,
    load_queries,
    rebuild_access_structures,
)

_log = logging.getLogger(__name__)

MetadataSource = Callable[[], Mapping[str, str | None]]
"""Returns entries for the table `meta`, asked for at the end of a transaction; None deletes an entry."""


class SubscriptionCatalog:
    """The subscriptions, their linear paths, and the tag paths that these match."""

    def __init__(self, database: DuckDBDatabase) -> None:
        self._database = database
        self.namespaces = self._read_namespaces()
        self._paths = PathCatalog(database)
        self.tag_paths = TagPathCatalog(database)
        self._compiler = QueryCompiler(self._paths, self.namespaces)
        self._parameters: PlanParameters | None = None

    def _read_namespaces(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._database.meta("namespaces") or "{}")
        return found

    def declare(self, namespaces: Namespaces) -> None:
        """Declare further prefixes for new queries; ValueError if one is bound already."""
        with self._database.lock:
            declared = dict(self.namespaces)
            queries = self._database.connect().value("SELECT count(*) FROM subscription")
            declare(declared, namespaces, int(queries))
            if declared != self.namespaces:
                with self._database.write_transaction():
                    self._database.set_meta({"namespaces": json.dumps(declared)})
                self.namespaces.update(declared)

    def reload(self) -> None:
        """Discard cached state and read it again from the tables."""
        self._parameters = None
        declared = self._read_namespaces()
        self.namespaces.clear()
        self.namespaces.update(declared)
        self._paths.discard_new()
        self._compiler.clear_cache()
        self.tag_paths.reload()

    def apply_changes(
        self,
        removed: Sequence[str] = (),
        put: Sequence[tuple[str, str]] = (),
        on_error: OnError | None = None,
        replace: bool = True,
        metadata: MetadataSource = dict,
        numbers: Mapping[str, int] | None = None,
    ) -> None:
        """Remove and add subscriptions in one transaction, together with entries of `meta`.

        Ids of `put` that are subscribed already are replaced, or refused if `replace` is false. They keep
        their numbers, and new ones get the next free number, unless `numbers` gives them one.
        """
        with self._database.lock, pause_garbage_collection():
            self._database.check_idle()
            self._parameters = None
            try:
                self._apply(removed, put, on_error, replace, metadata, numbers or {})
            except BaseException:
                self.reload()
                raise
            self._paths.clear_new()

    def _apply(
        self,
        removed: Sequence[str],
        put: Sequence[tuple[str, str]],
        on_error: OnError | None,
        replace: bool,
        metadata: MetadataSource,
        numbers: Mapping[str, int],
    ) -> None:
        existing = self.numbers([*removed, *(id for id, _ in put)])
        with self._database.write_transaction() as connection:
            accepted = self._compile(put, {} if replace else existing, on_error)
            deleted = [existing[id] for id in (*removed, *accepted) if id in existing]
            if deleted:
                delete_subscriptions(connection, pa.table({"number": pa.array(deleted, pa.int64())}))
            if accepted:
                self._insert(connection, accepted, {**existing, **numbers})
            self._database.set_meta(metadata())
        _log.debug("%d subscriptions added or replaced, %d deleted", len(accepted), len(deleted))

    def _compile(
        self, put: Sequence[tuple[str, str]], taken: Mapping[str, int], on_error: OnError | None
    ) -> dict[str, CompiledQuery]:
        """Return the compiled queries by id, without those that are refused."""
        accepted: dict[str, CompiledQuery] = {}
        for id, text in put:
            try:
                if not _is_valid_id(id):
                    raise ArgumentError(f"an id in tables is a string of characters, not {id!r}")
                if id in taken or id in accepted:
                    raise ArgumentError(f"{id!r} is subscribed already")
                accepted[id] = self._compiler.compile(text)
            except ValueError as error:
                if on_error is None:
                    error.add_note(f"subscription {id!r}")
                    raise
                on_error(id, error)
        return accepted

    def _insert(
        self, connection: Connection, queries: Mapping[str, CompiledQuery], numbers: Mapping[str, int]
    ) -> None:
        compiled = list(queries.values())
        plan = _read_plan(connection)
        if plan is None:
            choice = choose_plan(estimate_statistics(compiled))
            plan = choice.plan
            _log.info("plan %s chosen for %d rules", plan.value, choice.statistics.rules)
            _log.debug("%s", choice)
            self._database.set_meta({"plan": plan.value})
        query_ids, size = load_queries(
            self._database, connection, self._paths, plan, compiled, self._match_new_paths
        )
        self._extend_structure_size(connection, size)
        new = [id for id in queries if id not in numbers]
        first = self._database.allocate_ids("subscription", len(new))
        numbers = {**numbers, **dict(zip(new, range(first, first + len(new)), strict=True))}
        beyond = max(numbers[id] for id in queries) + 1 - self._database.next_id("subscription")
        if beyond > 0:  # later subscriptions get numbers after those given
            self._database.allocate_ids("subscription", beyond)
        connection.insert(
            "subscription",
            pa.table(
                {
                    "number": pa.array([numbers[id] for id in queries], pa.int64()),
                    "id": pa.array(list(queries), pa.string()),
                    "query": pa.array(query_ids, pa.int64()),
                }
            ),
        )

    def _match_new_paths(self, connection: Connection, changed: set[int]) -> None:
        self.tag_paths.add_paths(connection, self._paths.new_paths, changed)

    def numbers(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the subscription numbers by id, without ids that are not subscribed."""
        connection = self._database.connect()
        requested = pa.table({"id": pa.array(list(filter(_is_valid_id, ids)), pa.string())})
        with connection.register(requested=requested):
            rows = connection.rows(
                "SELECT s.id, s.number FROM subscription s SEMI JOIN requested r ON r.id = s.id"
            )
        return dict(rows)

    # -- plans -----------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """The plan in use; None as long as there are no subscriptions."""
        return _read_plan(self._database.connect())

    def use_plan(self, plan: Plan) -> None:
        """Change the plan, rebuilding its access structures in one transaction."""
        with self._database.lock:
            current = _read_plan(self._database.writer)
            if current is plan:
                return
            self._parameters = None
            with self._database.write_transaction() as connection:
                size = rebuild_access_structures(self._database, connection, plan)
                self._database.set_meta({"plan": plan.value, "reach": json.dumps(size._asdict())})
            if current is not None:
                _log.info("plan changed from %s to %s", current.value, plan.value)

    def update_structure_size(self) -> None:
        """Store the size of the access structures, which deletions may have reduced."""
        try:
            with self._database.write_transaction() as connection:
                self._database.set_meta({"reach": json.dumps(measure_structure(connection)._asdict())})
        finally:
            self.reload()

    def plan_parameters(self, connection: Connection) -> PlanParameters:
        """Return the parameters of the statements; the caller holds the database's lock."""
        if self._parameters is None:
            self._parameters = read_plan_parameters(connection)
        return self._parameters

    def explain(self) -> Choice:
        """Return the estimated cost of each plan for the subscriptions, and the plan in use."""
        connection = self._database.connect()
        return choose_plan(read_statistics(connection), _read_plan(connection))

    def _extend_structure_size(self, connection: Connection, size: StructureSize) -> None:
        before = _read_structure_size(connection)
        if before | size != before:
            self._database.set_meta({"reach": json.dumps((before | size)._asdict())})


def _is_valid_id(id: object) -> bool:
    """Return whether DuckDB can store the id: half of a surrogate pair cannot be encoded."""
    try:
        return isinstance(id, str) and id.encode() is not None
    except UnicodeEncodeError:
        return False


def _read_plan(connection: Connection) -> Plan | None:
    found = connection.value("SELECT value FROM meta WHERE name = 'plan'")
    return Plan(found) if found is not None else None


def _read_structure_size(connection: Connection) -> StructureSize:
    found = connection.value("SELECT value FROM meta WHERE name = 'reach'")
    return StructureSize(**json.loads(found)) if found is not None else StructureSize()


def read_plan_parameters(connection: Connection) -> PlanParameters:
    """Return the parameters of the statements, for the tables as the connection sees them."""
    ops = frozenset(op for (op,) in connection.rows("SELECT DISTINCT op FROM fact"))
    compared = f"SELECT count(*) FROM linear_path WHERE uses & {_COMPARED_TEXT} = {_COMPARED_TEXT}"
    return PlanParameters(
        plan=_read_plan(connection) or Plan.UNROLLED,
        fact_ops=ops,
        size=_read_structure_size(connection),
        texts=bool(connection.value(compared)),
        depth=connection.value("SELECT coalesce(max(depth), 0) FROM shape_part"),
    )


_COMPARED_TEXT = int(Uses.TEXT | Uses.EXTENT)
