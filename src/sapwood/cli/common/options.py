"""Arguments and options that several commands share, and the namespaces of `--namespace`."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.common.console import fail
from sapwood.errors import ArgumentError
from sapwood.lang.namespaces import ANY, ANY_PREFIX, declare
from sapwood.lang.xpath.error_hints import set_declaration_form, set_other_language_hints

QUERIES_HELP = (
    "One query per line (the line's number is its id), JSON lines, or a folder of *.xpath, *.xq and *.xscl."
)
MESSAGES_HELP = "Files, folders, *.xmll (one per line), - (stdin)."
DEFAULT_STORE = "subscriptions.db"

QueriesArgument = Annotated[str, typer.Argument(help=QUERIES_HELP)]
NamespacesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="PREFIX=URI",
        help="Declare a prefix for the queries; 'any' lets names without a prefix match in any namespace.",
    ),
]
MaxBytesOption = Annotated[int, typer.Option(help="Refuse messages larger than this.")]
RawOption = Annotated[bool, typer.Option("--raw", help="Write the bodies alone, each on a line.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON.")]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="JSON lines, as in a pipe.")]
StoreOption = Annotated[
    str, typer.Option("--store", metavar="URL", envvar="SAPWOOD_STORE", help="A file, or postgresql://….")
]
TenantOption = Annotated[
    str, typer.Option("--tenant", metavar="NAME", help="The tenant of the store.", show_default=False)
]


def parse_namespaces(declared: list[str] | None) -> dict[str, str]:
    """Parse `--namespace PREFIX=URI` and `--namespace any`; hints then refer to the option and commands."""
    set_declaration_form("-n {prefix}=URI")
    set_other_language_hints(
        "filters are XPath 1.0; 'sapwood transform' takes for-where-return queries, too",
        "filters are XPath 1.0; 'sapwood join' takes joins, too",
    )
    pairs = [(f"{ANY_PREFIX}={ANY}" if entry == ANY else entry).partition("=") for entry in declared or []]
    namespaces: dict[str, str] = {}
    for prefix, equals, uri in pairs:
        if not (prefix and equals and uri):
            fail(f"--namespace takes PREFIX=URI, not {prefix + equals + uri!r}")
        try:
            declare(namespaces, {prefix: uri})
        except ArgumentError as error:
            fail(f"--namespace: {error}")
    return namespaces
