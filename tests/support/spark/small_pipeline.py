"""A pipeline with a few messages and queries, for tests of the command `sapwood run`."""

from __future__ import annotations

from pathlib import Path

QUERIES = {
    "1": "//a",
    "2": "//b[. > 3]",
    "3": "//c[count(d) = 1]",
    "4": "/none",
    "5": "for $b in //b where $b > 3 return <more>{$b}</more>",
}
MESSAGES = 5
FILES = 4
PIPELINE = """
name = "test"
[source]
path = "inbox"
files_per_batch = 1
[subscriptions]
file = "queries.txt"
[deliveries]
path = "deliveries"
[rejects]
path = "rejects"
[run]
checkpoint = "checkpoint"
trigger = "{trigger}"
master = "local[2]"
partitions = 2
"""


def describe(folder: Path, trigger: str, **changed: str) -> None:
    text = PIPELINE.format(trigger=trigger)
    for old, new in changed.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    (folder / "pipeline.toml").write_text(text)


def write_pipeline(folder: Path) -> None:
    """Write a pipeline with four files of five messages, one of each malformed."""
    (folder / "inbox").mkdir()
    for file in range(FILES):
        lines = [f"<a><b>{file + line}</b><c><d/></c></a>\n" for line in range(MESSAGES - 1)]
        (folder / "inbox" / f"{file}.xmll").write_text("".join([*lines, "<a><b></a>\n"]))
    (folder / "queries.txt").write_text("".join(f"{query}\n" for query in QUERIES.values()))
    describe(folder, "available-now")
