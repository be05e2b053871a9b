"""The tables, and what their rows mean.

    subscription     who is subscribed to which query, numbered in the order added
    query            each distinct query once; `exact`: its rules are the whole truth
    rule             a disjunct of a query; `shape` tells how its branches hang together, if they do
    predicate        the branches of a rule from n = 1, with the number of the fact if it is one; with n = 0,
                     facts that follow from the others, to find the rule by
    fact             each distinct fact once: path, operator, constant

Two access structures lead from what a message says to rules. Which one is filled is the plan's choice:

    fact_chain       facts of a rule, one after the other: `id` is reached from `pre` if the fact holds;
    bound_chain      then its bounds likewise. Chains start at 0. Equal beginnings are one; a `final` row's
                     id is the rule. `level` counts from 1
    unrolled         a rule in one row, FACTS facts and BOUNDS bounds side by side; what does not fit is
                     chained, starting at `next`

Paths, and where they lead in messages:

    linear_path      each distinct path of a branch once: text, and the literal parts to look it up by; `uses`
                     says what predicates want of what it reaches
    path_branching   a path whose steps have branching points: the steps' numbers, in `points` as text
    shape            the path branchings of a rule's branches
    shape_part       the same as a tree: branches and, negative, branching points, with the point they hang
                     from, how deep that is, and how many hang there
    tag_path         a cache of the tag paths that messages have and some path matches
    path_match       which those are
    tag_branching    where on a tag path the branching points of a path may lie: a row for each possibility,
                     or one with null, if there are too many
    path_class       of paths that bounds use: those that match the same tag paths are one class
    class_tag        its tag paths
    class_member     the same as text, to find it by

All numbers are given by whoever writes, of whom there is one at a time; `counter` has the next ones.
"""

from __future__ import annotations

FORMAT = 2
"""of the file; goes up when the tables change"""

FACTS, BOUNDS = 4, 4
NO_FACT = 0
"""the fact that holds of every message"""
NO_PATH = 0
"""the path, and the class, that every message has"""

_COMPARISON = "path INTEGER, op TINYINT, number DOUBLE, text VARCHAR"
_SLOTS = ", ".join(
    [f"fact{i} BIGINT" for i in range(1, FACTS + 1)]
    + [f"path{i} INTEGER, op{i} TINYINT, number{i} DOUBLE, text{i} VARCHAR" for i in range(1, BOUNDS + 1)]
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

FIRST_ROWS = (
    f"INSERT INTO meta VALUES ('format', '{FORMAT}')",
    *(f"INSERT INTO counter VALUES ('{name}', 1)" for name in COUNTERS),
    f"INSERT INTO path_class VALUES ({NO_PATH}, {NO_PATH})",
)

CACHED = ("tag_path", "path_match", "tag_branching", "class_tag", "class_member")
"""What was found out about messages, and can be found out again; and `path_class` but for its first row."""

VIEWS: dict[str, str] = {
    # the paper's tables, as far as ours are cut otherwise
    "predicate_chain": """
        SELECT c.pre AS pre_id, f.path, f.op, f.number, f.text, c.id AS chain_id, c.final
        FROM fact_chain c JOIN fact f ON f.id = c.fact
        UNION ALL
        SELECT pre, path, op, number, text, id, final FROM bound_chain""",
    "subscription_branching": """
        SELECT s.id AS subscription, h.branchings
        FROM subscription s JOIN rule r ON r.query = s.query JOIN shape h ON h.id = r.shape""",
}
