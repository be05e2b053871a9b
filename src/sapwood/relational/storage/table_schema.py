"""The schema of the DuckDB file.

    subscription     id and query of each subscription, numbered in the order added
    query            each distinct query once; if not `exact`, its rules are weaker than the query, and
                     candidates need a residual check
    rule             a disjunct of a query; `shape` is the tree of its branching points, null without any
    predicate        the branches of a rule from n = 1, with the fact's id if it is one; with n = 0, facts
                     that are implied by the others, to find the rule by
    fact             each distinct fact once: path, operator, constant

Two access structures lead from facts to rules. The plan says which one is filled:

    fact_chain       a trie of facts: the node `id` follows the node `pre` if the fact holds;
    bound_chain      the bounds, which follow the facts. Chains start at node 0. Equal prefixes are shared;
                     the `id` of a `final` row is the rule. `level` counts from 1
    unrolled         a rule in one row, FACT_COLUMNS facts and BOUND_COLUMNS bounds; the others are a chain
                     that starts at node `next`
    bucket           limits of the buckets in which the plan `buckets` puts range constants

Paths of queries, and tag paths of messages:

    linear_path      each distinct path of a branch once: its text, and the literal parts to look it up by;
                     `uses` has the columns of values that predicates read (see path_catalog.Uses)
    path_branching   a path with branching points: `points` has the numbers of their steps as text
    shape            the path branchings of a rule's branches
    shape_part       the same as a tree: branches and, as negative numbers, branching points, each with its
                     parent point, its depth, and the number of its siblings
    tag_path         a cache of the tag paths of messages that some linear path matches
    path_match       the linear paths that match a tag path
    tag_branching    positions of a path's branching points on a tag path: a row for each possibility, or one
                     row with null if there are too many
    path_class       of paths with bounds: those that match the same tag paths are one class
    class_tag        the tag paths of a class
    class_member     the same as text, to look a class up by

There is one writer at a time, which allocates all ids: `counter` has the next ones. `meta` has the `format`,
the `plan`, the `namespaces`, the size of the access structure (`reach`), the base of Parquet snapshots
(`copied`), subscriptions that could not be stored (`left_out`), and the entries of `store_sync`.
"""

from __future__ import annotations

FORMAT = 2
"""the version of this schema"""

FACT_COLUMNS, BOUND_COLUMNS = 4, 4
NO_FACT = 0
"""the fact that holds for every message"""
NO_PATH = 0
"""the path, and the class, that every message has"""

_COMPARISON = "path INTEGER, op TINYINT, number DOUBLE, text VARCHAR"
_SLOTS = ", ".join(
    [f"fact{i} BIGINT" for i in range(1, FACT_COLUMNS + 1)]
    + [
        f"path{i} INTEGER, op{i} TINYINT, number{i} DOUBLE, text{i} VARCHAR"
        for i in range(1, BOUND_COLUMNS + 1)
    ]
)

TABLES: dict[str, str] = {
    "meta": "name VARCHAR, value VARCHAR",
    "counter": "name VARCHAR, next BIGINT",
    "subscription": "number BIGINT, id VARCHAR, query BIGINT",
    "query": "id BIGINT, digest1 BIGINT, digest2 BIGINT, exact BOOLEAN, text VARCHAR",
    "rule": "id BIGINT, query BIGINT, shape INTEGER",
    "predicate": f"rule BIGINT, n INTEGER, fact BIGINT, {_COMPARISON}, branching INTEGER",
    "fact": f"id BIGINT, key BIGINT, {_COMPARISON}",
    "fact_chain": "level INTEGER, pre BIGINT, fact BIGINT, id BIGINT, final BOOLEAN",
    "bound_chain": f"level INTEGER, pre BIGINT, {_COMPARISON}, id BIGINT, final BOOLEAN",
    "unrolled": f"rule BIGINT, next BIGINT, {_SLOTS}",
    "bucket": "path INTEGER, op TINYINT, number DOUBLE",
    "linear_path": "id INTEGER, text VARCHAR, prefix VARCHAR, suffix VARCHAR, middle VARCHAR, uses INTEGER",
    "path_branching": "id INTEGER, path INTEGER, points VARCHAR",
    "shape": "id INTEGER, branchings VARCHAR",
    "shape_part": "shape INTEGER, part INTEGER, parent INTEGER, depth INTEGER, siblings INTEGER",
    "tag_path": "id INTEGER, text VARCHAR, reversed VARCHAR",
    "path_match": "tag INTEGER, path INTEGER",
    "tag_branching": "tag INTEGER, branching INTEGER, positions INTEGER[]",
    "path_class": "path INTEGER, class INTEGER",
    "class_tag": "class INTEGER, tag INTEGER",
    "class_member": "class INTEGER, tags VARCHAR",
}

COUNTERS = ("subscription", "query", "rule", "fact", "chain", "path", "branching", "shape", "tag", "class")

INITIAL_ROWS = (
    f"INSERT INTO meta VALUES ('format', '{FORMAT}')",
    *(f"INSERT INTO counter VALUES ('{name}', 1)" for name in COUNTERS),
    f"INSERT INTO path_class VALUES ({NO_PATH}, {NO_PATH})",
)

MESSAGE_CACHE = ("tag_path", "path_match", "tag_branching", "class_tag", "class_member")
"""Tables that can be computed again from messages; and so can `path_class` but for its first row."""

VIEWS: dict[str, str] = {
    # tables of the paper that are split differently here
    "predicate_chain": """
        SELECT c.pre AS pre_id, f.path, f.op, f.number, f.text, c.id AS chain_id, c.final
        FROM fact_chain c JOIN fact f ON f.id = c.fact
        UNION ALL
        SELECT pre, path, op, number, text, id, final FROM bound_chain""",
    "subscription_branching": """
        SELECT s.id AS subscription, h.branchings
        FROM subscription s JOIN rule r ON r.query = s.query JOIN shape h ON h.id = r.shape""",
}
