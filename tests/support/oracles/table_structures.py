"""Checks the consistency of tables: each structure against the others with the same content."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from sapwood.relational import Plan, RelationalMatcher
from sapwood.relational.paths.linear_path import (
    find_positions,
    parse_linear_path,
    parse_tag_path,
    path_matches,
)
from sapwood.relational.paths.path_catalog import Uses, required_uses
from sapwood.relational.rules.comparisons import ALWAYS, FIRST_BOUND
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.storage.table_schema import BOUND_COLUMNS, FACT_COLUMNS, NO_FACT, NO_PATH

Fact = int
Bound = tuple[int, int, float | None, str | None]
Row = tuple[Any, ...]

FOR_SUBSCRIPTIONS = ("subscription", "query", "rule", "predicate", "fact_chain", "bound_chain", "unrolled")
FOR_PATHS = ("fact", "linear_path", "path_branching", "shape", "shape_part")
FOR_MESSAGES = ("tag_path", "path_match", "tag_branching", "class_tag", "class_member")


def assert_consistent(matcher: RelationalMatcher) -> None:
    """Assert that there is no incomplete subscription, no dangling row, and no contradiction."""
    connection = matcher.connection
    _subscriptions(connection)
    wanted = _predicates(connection)
    assert _reached(connection, matcher.plan) == wanted
    _paths(connection)
    _messages(connection)
    _counters(connection)
    connection.close()


def assert_empty(matcher: RelationalMatcher) -> None:
    """Assert that no rows of subscriptions and messages are left."""
    connection = matcher.connection
    for table in (*FOR_SUBSCRIPTIONS, *FOR_PATHS, *FOR_MESSAGES):
        assert connection.value(f"SELECT count(*) FROM {table}") == 0, table
    assert connection.rows("SELECT path, class FROM path_class") == [(NO_PATH, NO_PATH)]
    connection.close()


def _subscriptions(connection: Connection) -> None:
    rows = connection.rows("SELECT number, id, query FROM subscription")
    _distinct(number for number, _, _ in rows)
    _distinct(id for _, id, _ in rows)
    queries = [id for (id,) in connection.rows("SELECT id FROM query")]
    _distinct(queries)
    assert {query for _, _, query in rows} == set(queries)
    _distinct(connection.rows("SELECT digest1, digest2 FROM query"))
    rules = connection.rows("SELECT id, query FROM rule")
    _distinct(id for id, _ in rules)
    assert {query for _, query in rules} <= set(queries)


def _predicates(connection: Connection) -> dict[int, tuple[set[Fact], set[Bound]]]:
    """Return the facts and bounds of each rule."""
    shapes = dict(connection.rows("SELECT id, shape FROM rule"))
    texts = dict(connection.rows("SELECT id, branchings FROM shape"))
    facts = {id: row for id, *row in connection.rows("SELECT id, path, op, number, text FROM fact")}
    assert NO_FACT not in facts
    paths_of_branchings = dict(connection.rows("SELECT id, path FROM path_branching"))
    uses = dict(connection.rows("SELECT id, uses FROM linear_path"))
    found: dict[int, tuple[set[Fact], set[Bound]]] = {rule: (set(), set()) for rule in shapes}
    branchings: dict[int, dict[int, int]] = {rule: {} for rule in shapes}
    rows = connection.rows("SELECT rule, n, fact, path, op, number, text, branching FROM predicate")
    for rule, n, fact, path, op, number, text, branching in rows:
        assert rule in shapes, "a predicate of no rule"
        if fact is None:
            assert n > 0
            assert op >= FIRST_BOUND
            found[rule][1].add((path, op, number, text))
        elif fact == NO_FACT:
            assert (n, path) == (0, NO_PATH)
            found[rule][0].add(fact)
        else:
            assert facts[fact] == [path, op, number, text]
            assert n == 0 or op < FIRST_BOUND
            found[rule][0].add(fact)
        if path != NO_PATH:
            wanted = required_uses(op, branching is not None)
            assert n == 0 or uses[path] & wanted == wanted
        if branching is not None:
            assert paths_of_branchings[branching] == path
        if n:
            branchings[rule][n] = branching or 0
    for rule, shape in shapes.items():
        assert found[rule][0], "a rule that nothing leads to"
        listed = [branchings[rule][n] for n in range(1, len(branchings[rule]) + 1)]
        assert any(listed) == (shape is not None)
        if shape is not None:
            assert texts[shape] == "&".join(map(str, listed))
    return found


def _reached(connection: Connection, plan: Plan | None) -> dict[int, tuple[set[Fact], set[Bound]]]:
    """Return the facts and bounds by which the access structure leads to each rule."""
    asked: dict[int, Row] = {}  # what leads to each link of a chain, and from where
    finals: dict[int, Row] = {}
    levels = {"fact": 0, "bound": 0}
    chains = {"fact": "fact", "bound": "path, op, number, text"}
    for kind, columns in chains.items():
        for level, pre, id, final, *what in connection.rows(
            f"SELECT level, pre, id, final, {columns} FROM {kind}_chain"
        ):
            into = finals if final else asked
            assert id not in into, "two rows lead to the same"
            into[id] = (kind, level, pre, *what)
            levels[kind] = max(levels[kind], level)
    assert not asked.keys() - {pre for _, _, pre, *_ in [*asked.values(), *finals.values()]}, "a dead end"
    found: dict[int, tuple[set[Fact], set[Bound]]] = {}
    starts: dict[int, int | None] = dict.fromkeys(finals, 0)
    slots = (0, 0)
    if plan is Plan.UNROLLED:
        starts, slots = _in_rows(connection, found)
        assert finals.keys() == {rule for rule, start in starts.items() if start is not None}
    else:
        assert connection.value("SELECT count(*) FROM unrolled") == 0
        shared = Counter((kind, pre, *what) for kind, _, pre, *what in asked.values())
        assert max(shared.values(), default=1) == 1, "equal beginnings are stored twice"
    for rule, last in finals.items():
        facts, bounds = found.setdefault(rule, (set(), set()))
        at: Row | None = last
        while at is not None:
            kind, _, pre, *what = at
            if kind == "fact":
                facts.add(what[0])
            else:
                bounds.add((what[0], what[1], what[2], what[3]))
            at = asked.get(pre)
        assert pre == starts[rule]
    reach = json.loads(connection.value("SELECT value FROM meta WHERE name = 'reach'") or "{}")
    assert levels["fact"] <= reach.get("fact_levels", 0)
    assert levels["bound"] <= reach.get("bound_levels", 0)
    assert slots[0] <= reach.get("fact_slots", 0)
    assert slots[1] <= reach.get("bound_slots", 0)
    return found


def _in_rows(
    connection: Connection, found: dict[int, tuple[set[Fact], set[Bound]]]
) -> tuple[dict[int, int | None], tuple[int, int]]:
    """Add the facts and bounds of unrolled rows; return where their chains start, and the columns in use."""
    facts = [f"fact{i}" for i in range(1, FACT_COLUMNS + 1)]
    bounds = [f"{name}{i}" for i in range(1, BOUND_COLUMNS + 1) for name in ("path", "op", "number", "text")]
    starts: dict[int, int | None] = {}
    widest = [0, 0]
    for rule, next, *cells in connection.rows(
        f"SELECT rule, next, {', '.join(facts + bounds)} FROM unrolled"
    ):
        assert rule not in starts, "a rule has two rows"
        starts[rule] = next
        some = cells[:FACT_COLUMNS]
        used = [i for i, fact in enumerate(some, 1) if fact != NO_FACT]
        asked: set[Bound] = set()
        for i in range(BOUND_COLUMNS):
            path, op, number, text = cells[FACT_COLUMNS + 4 * i : FACT_COLUMNS + 4 * i + 4]
            if op != ALWAYS:
                asked.add((path, op, number, text))
                widest[1] = max(widest[1], i + 1)
            else:
                assert path == NO_PATH
        widest[0] = max(widest[0], *used, 0) if used else widest[0]
        found[rule] = ({some[i - 1] for i in used} or {NO_FACT}, asked)
    _distinct(start for start in starts.values() if start is not None)
    return starts, (widest[0], widest[1])


def _paths(connection: Connection) -> None:
    for table, column in (
        ("linear_path", "text"),
        ("path_branching", "(path, points)"),
        ("shape", "branchings"),
    ):
        _distinct(connection.rows(f"SELECT id FROM {table}"))
        _distinct(connection.rows(f"SELECT {column} FROM {table}"))
    for id, text, prefix, suffix, middle in connection.rows(
        "SELECT id, text, prefix, suffix, middle FROM linear_path"
    ):
        path = parse_linear_path(text)
        assert (path.prefix, path.suffix, path.middle) == (prefix, suffix, middle), id
    _distinct(connection.rows("SELECT path, op, number, text FROM fact"))
    assert {shape for (shape,) in connection.rows("SELECT shape FROM shape_part")} == {
        shape for (shape,) in connection.rows("SELECT id FROM shape")
    }


def _messages(connection: Connection) -> None:
    """Assert that the matches of tag paths are complete."""
    tags = {id: parse_tag_path(text) for id, text in connection.rows("SELECT id, text FROM tag_path")}
    _distinct(tags.values())
    rows = connection.rows("SELECT id, text, uses FROM linear_path")
    paths = {id: parse_linear_path(text) for id, text, _ in rows}
    pairs = connection.rows("SELECT tag, path FROM path_match")
    _distinct(pairs)
    assert {(tag, path) for tag, path in pairs if path in paths} == {
        (tag, path)
        for tag, name in tags.items()
        for path, steps in paths.items()
        if path_matches(steps, name)
    }
    members: dict[int, set[int]] = {}
    for number, tag in connection.rows("SELECT class, tag FROM class_tag"):
        members.setdefault(number, set()).add(tag)
    classes = dict(connection.rows("SELECT path, class FROM path_class"))
    assert classes.pop(NO_PATH) == NO_PATH
    for id, _, uses in rows:
        matched = {tag for tag, path in pairs if path == id}
        if uses & Uses.EXTENT and matched:
            assert members[classes[id]] == matched
    points = dict(connection.rows("SELECT id, points FROM path_branching"))
    of_path = dict(connection.rows("SELECT id, path FROM path_branching"))
    placed: dict[tuple[int, int], list[tuple[int, ...] | None]] = {}
    for tag, branching, where in connection.rows("SELECT tag, branching, positions FROM tag_branching"):
        if tag in tags and branching in points:
            placed.setdefault((tag, branching), []).append(None if where is None else tuple(where))
    for (tag, branching), vectors in placed.items():
        at = tuple(int(point.partition("=")[2]) for point in points[branching].split("&"))
        expected = find_positions(paths[of_path[branching]], tags[tag], at)
        assert sorted(map(str, vectors)) == sorted(map(str, [None] if expected is None else expected))


def _counters(connection: Connection) -> None:
    next = dict(connection.rows("SELECT name, next FROM counter"))
    tables = {
        "subscription": "SELECT max(number) FROM subscription",
        "query": "SELECT max(id) FROM query",
        "rule": "SELECT max(id) FROM rule",
        "fact": "SELECT max(id) FROM fact",
        "chain": "SELECT max(id) FROM (FROM fact_chain SELECT id, final UNION ALL "
        "FROM bound_chain SELECT id, final) WHERE NOT final",
        "path": "SELECT max(id) FROM linear_path",
        "branching": "SELECT max(id) FROM path_branching",
        "shape": "SELECT max(id) FROM shape",
        "tag": "SELECT max(id) FROM tag_path",
        "class": "SELECT max(class) FROM class_member",
    }
    for name, sql in tables.items():
        assert (connection.value(sql) or 0) < next[name], name


def _distinct(items: Any) -> None:
    seen = Counter(items)
    assert not [item for item, count in seen.items() if count > 1]
