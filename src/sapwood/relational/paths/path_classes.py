"""Classes of linear paths that match the same tag paths.

Bounds are compared with the extent (minimum and maximum) of all values that a path selects. Thousands of
paths share few sets of tag paths: so extents are computed for classes, not for paths.
"""

from __future__ import annotations

import pyarrow as pa

from sapwood.relational.paths.path_catalog import Uses
from sapwood.relational.storage.duckdb_database import Connection, DuckDBDatabase


def assign_path_classes(database: DuckDBDatabase, connection: Connection, affected: pa.Table) -> None:
    """Assign classes to those of the `affected` paths that bounds use, by the tag paths they match now."""
    if not len(affected):
        return
    with connection.register(affected=affected):
        connection.create_temp_table(
            "classified",
            f"""
            SELECT m.path, string_agg(CAST(m.tag AS VARCHAR), ',' ORDER BY m.tag) AS tags
            FROM path_match m
                 JOIN (SELECT DISTINCT a.path FROM affected a JOIN linear_path p ON p.id = a.path
                       WHERE p.uses & {int(Uses.EXTENT)} <> 0) a ON a.path = m.path
            GROUP BY m.path""",
        )
    new = connection.rows(
        """
        SELECT DISTINCT tags FROM classified ANTI JOIN class_member USING (tags)
        ORDER BY tags"""
    )
    if new:
        first = database.allocate_ids("class", len(new))
        texts = [text for (text,) in new]
        numbers = range(first, first + len(new))
        connection.insert(
            "class_member",
            pa.table({"class": pa.array(numbers, pa.int32()), "tags": pa.array(texts, pa.string())}),
        )
        pairs = [
            (number, int(tag)) for number, text in zip(numbers, texts, strict=True) for tag in text.split(",")
        ]
        connection.insert(
            "class_tag",
            pa.table(
                {
                    "class": pa.array([number for number, _ in pairs], pa.int32()),
                    "tag": pa.array([tag for _, tag in pairs], pa.int32()),
                }
            ),
        )
    connection.run("DELETE FROM path_class WHERE path IN (SELECT path FROM classified)")
    connection.run(
        """
        INSERT INTO path_class
        SELECT c.path, m.class FROM classified c JOIN class_member m ON m.tags = c.tags"""
    )
    # classes without paths would only cost extents
    for table in ("class_tag", "class_member"):
        connection.run(f"DELETE FROM {table} WHERE class NOT IN (SELECT class FROM path_class)")
