"""The parts of the docs that are generated from the code, and the command that writes them.

    python -m tests.support.docs.generated_docs      (or: make reference)

A page holds a generated part between two comments, `<!-- generated: NAME -->` and `<!-- end of NAME -->`; a
test compares it with what the code gives now.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support.docs.command_reference import command_reference
from tests.support.docs.doc_blocks import ROOT
from tests.support.docs.endpoint_table import endpoint_table
from tests.support.docs.import_diagram import Graph, draw, import_graph
from tests.support.docs.server_file_reference import server_file_reference

_VERSION = re.compile(r"[<>=~!;@ ]")


def generated_files() -> Iterator[tuple[Path, str]]:
    """Yield each file that is generated, in whole or in part, and the text that it must have."""
    graph = import_graph()
    explanation = ROOT / "docs" / "explanation"
    yield explanation / "packages.svg", draw(graph)
    yield _replace_part(explanation / "architecture.md", "imports", _import_table(graph))
    yield _replace_part(ROOT / "docs" / "index.md", "extras", _extras_table())
    yield _replace_part(ROOT / "docs" / "reference" / "command.md", "commands", command_reference())
    yield _replace_part(ROOT / "docs" / "reference" / "server-file.md", "settings", server_file_reference())
    yield _replace_part(ROOT / "docs" / "reference" / "http-api.md", "endpoints", endpoint_table())


def _replace_part(page: Path, name: str, part: str) -> tuple[Path, str]:
    begin, end = f"<!-- generated: {name} -->\n", f"<!-- end of {name} -->\n"
    text = page.read_text("utf-8")
    if begin not in text or end not in text:
        raise ValueError(f"{page.relative_to(ROOT)} lacks {begin.strip()} or {end.strip()}")
    head, _, rest = text.partition(begin)
    return page, f"{head}{begin}\n{part.strip()}\n\n{end}{rest.partition(end)[2]}"


def _import_table(graph: Graph) -> str:
    rows = [
        f"| `{package}` | {', '.join(f'`{name}`' for name in sorted(imported)) or 'none'} |"
        for package, imported in graph.items()
    ]
    return "\n".join(["| package | imports |", "|---|---|", *rows])


def _extras_table() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    rows = [
        f"| `{extra}` | {', '.join(f'`{_VERSION.split(wanted)[0]}`' for wanted in sorted(installed))} |"
        for extra, installed in project["optional-dependencies"].items()
        if extra not in ("docs", "dev")
    ]
    return "\n".join(["| extra | installs |", "|---|---|", *rows])


def main() -> None:
    for file, text in generated_files():
        if not file.exists() or file.read_text("utf-8") != text:
            file.write_text(text, "utf-8")
            print(f"wrote {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
