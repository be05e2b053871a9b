"""The formats of table files and snapshot folders are the same in every version of the code."""

from __future__ import annotations

import pytest

from sapwood.relational.paths.path_catalog import PathCatalog
from sapwood.relational.rules.rule_compiler import QueryCompiler
from sapwood.relational.sql.match_plan import Plan
from sapwood.relational.storage.duckdb_database import DuckDBDatabase
from sapwood.relational.storage.table_snapshot import TableVersions


@pytest.mark.parametrize(
    ("query", "digest"),
    [
        ("/a[b = 1 and c = 'x']", (1577155863343741962, -4771493810796434288)),
        ("/a[b > 1]/c", (7155377241415969404, 7780135233053593441)),
        ("/a[b and contains(c, 'x')]", (297826119393966426, -5046095401443767671)),
        ("/a[b = 1 or c]", (4888373970912443599, 6651820517790031449)),
        ("/a[not(b)]", (3769322028928060297, -2572603030645097239)),
        ("/a[b[c = 1]/d]", (-4180065455711211801, -9121445927756079061)),
        ("/a[b != '']", (5530796196375708266, -6584223374841287556)),
    ],
)
def test_digests_find_the_queries_of_older_files(query: str, digest: tuple[int, int]) -> None:
    """With other digests, a query that a file has already would be stored a second time."""
    database = DuckDBDatabase(None, threads=1)
    assert QueryCompiler(PathCatalog(database), {}).compile(query).digest == digest
    database.close()


def test_the_state_of_a_snapshot_is_read_from_folders_of_the_same_layout() -> None:
    old = (
        '{"plan": "shared", "counters": {"rule": 3, "chain": 2, "fact": 5, "query": 3}, "rules": 2, '
        '"chained": true, "stretches": {"0": "123", "4": "7"}}'
    )
    assert TableVersions.from_json(old) is None  # its files have other columns, and are written again
    text = old.replace("}}", '}, "layout": 2}')
    versions = TableVersions.from_json(text)
    assert versions is not None
    assert (versions.plan, versions.rules, versions.chained) == (Plan.SHARED, 2, True)
    assert versions.ranges == {0: "123", 4: "7"}
    assert TableVersions.from_json(versions.to_json()) == versions
    assert versions.to_json() == text
