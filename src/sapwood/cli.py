"""The `sapwood` command: a thin layer that reads arguments and writes JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Hashable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sapwood import Explanation, Limits, Matcher, MessageError, SapwoodError, Why
from sapwood.files import FileError, read_messages, read_queries
from sapwood.workload import MessageGenerator, QueryGenerator, dtds, load_dtd

app = typer.Typer(
    help="Match XML messages against very many standing XPath queries at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
generate = typer.Typer(help="Make messages or queries from a DTD.", no_args_is_help=True)
app.add_typer(generate, name="generate")
bench = typer.Typer(help="Measure, beside baselines in the same run.", no_args_is_help=True)
app.add_typer(bench, name="bench")

errors = Console(stderr=True, highlight=False)

NamespacesOption = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", metavar="PREFIX=URI", help="Declare a prefix for the queries."),
]
DtdOption = Annotated[
    str, typer.Option("--dtd", help=f"A DTD file, or one that is shipped: {', '.join(dtds())}.")
]
SeedOption = Annotated[int, typer.Option(help="The same seed gives the same output.")]
CountOption = Annotated[int, typer.Option("--count", "-c", min=1, help="How many to make.")]


def main() -> None:
    """Runs the command; what goes wrong on purpose is told in one line, without a traceback."""
    try:
        app()
    except (SapwoodError, FileError, ValueError) as error:
        _fail(str(error))
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(text: str) -> NoReturn:
    errors.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
    sys.exit(2)


def _namespaces(declared: list[str] | None) -> dict[str, str]:
    pairs = [entry.partition("=") for entry in declared or []]
    for prefix, equals, uri in pairs:
        if not (prefix and equals and uri):
            _fail(f"--namespace takes PREFIX=URI, not {prefix + equals + uri!r}")
    return {prefix: uri for prefix, _, uri in pairs}


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=errors, transient=True, disable=not sys.stderr.isatty())


# -- match ---------------------------------------------------------------------------------------------


@app.command()
def match(
    queries: Annotated[
        str, typer.Argument(help="One query a line (the line's number is its id), or JSON lines.")
    ],
    messages: Annotated[list[str], typer.Argument(help="Files, folders, *.xmll (one a line), - (stdin).")],
    select: Annotated[bool, typer.Option("--select", help="Tell the nodes selected, too.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Tell only how many subscriptions match.")] = False,
    namespace: NamespacesOption = None,
    max_bytes: Annotated[int, typer.Option(help="Refuse messages larger than this.")] = Limits().bytes,
) -> None:
    """Match messages against all queries; one JSON line a message.

    Bad queries and messages are reported and left out, the others go on; the exit status is then 1.
    """
    matcher = Matcher(_namespaces(namespace), Limits(bytes=max_bytes))
    refused = _load(matcher, queries)
    with matcher, _progress() as progress:
        task = progress.add_task("matching", total=None)
        for message in read_messages(messages):
            try:
                answer = _answer(matcher, message.body, select, count)
            except MessageError as error:
                refused += 1
                answer = {"error": {"reason": error.reason, "line": error.line, "column": error.column}}
            _write({"message": message.name, **answer})
            progress.advance(task)
    sys.stdout.flush()
    if refused:
        errors.print(f"[yellow]{refused:,} queries or messages were refused[/]")
        raise typer.Exit(1)


def _load(matcher: Matcher, path: str) -> int:
    """Subscribes all queries of a file; how many were refused, each reported with its line."""
    refused = 0
    line = 0

    def report(id: Hashable, error: ValueError) -> None:
        nonlocal refused
        refused += 1
        errors.print(f"[bold red]{escape(path)}:{line}:[/] {escape(str(error))}", soft_wrap=True)

    def pairs() -> Iterator[tuple[Hashable, str]]:
        nonlocal line
        for query in read_queries(path):
            line = query.line
            yield query.id, query.text
            progress.advance(task)

    with _progress() as progress:
        task = progress.add_task("loading queries", total=None)
        matcher.add_many(pairs(), report)
    return refused


def _answer(matcher: Matcher, body: bytes, select: bool, count: bool) -> dict[str, Any]:
    if select:
        nodes = matcher.select(body)
        return {"matches": [{"id": id, "nodes": [asdict(n) for n in found]} for id, found in nodes.items()]}
    matches = matcher.match(body)
    return {"count": len(matches)} if count else {"matches": list(matches)}


def _write(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")


# -- explain -------------------------------------------------------------------------------------------


@app.command()
def explain(
    query: Annotated[str, typer.Argument(help="An XPath 1.0 expression.")],
    message: Annotated[str | None, typer.Option(help="Also tell why this message matches, or not.")] = None,
    namespace: NamespacesOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show a query's pattern and paths, and what is native, what is refined, and why."""
    with Matcher(_namespaces(namespace)) as matcher:
        matcher.add("query", query)
        parts: list[Explanation | Why] = [matcher.explain("query")]
        parts += [matcher.why("query", m.body) for m in read_messages([message] if message else [])]
    for part in parts:
        print(json.dumps(asdict(part), ensure_ascii=False) if as_json else f"{part}\n")


# -- generate ------------------------------------------------------------------------------------------


@generate.command("messages")
def generate_messages(
    dtd: DtdOption,
    count: CountOption = 10,
    seed: SeedOption = 0,
    root: Annotated[str | None, typer.Option(help="The root element, if the DTD leaves a choice.")] = None,
    max_depth: Annotated[int, typer.Option(help="How deep elements nest.")] = 6,
    max_repeats: Annotated[int, typer.Option(help="How often * and + repeat at most.")] = 3,
    attribute_probability: Annotated[
        float | None, typer.Option(help="Of each optional attribute; by default drawn for each.")
    ] = None,
    values: Annotated[int, typer.Option(help="Distinct values of an element or attribute.")] = 20,
    value_skew: Annotated[float, typer.Option(help="Zipf exponent over the values; 0 is uniform.")] = 0.0,
    words: Annotated[bool, typer.Option("--words", help="Words for values instead of numbers.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder for one file a message.")] = None,
) -> None:
    """Make messages that are valid by a DTD, one a line."""
    generator = MessageGenerator(
        load_dtd(dtd, root),
        seed=seed,
        max_depth=max_depth,
        max_repeats=max_repeats,
        attribute_probability=attribute_probability,
        values=values,
        value_skew=value_skew,
        numeric=not words,
    )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with _progress() as progress:
        for number in progress.track(range(count), description="messages"):
            body = generator.message()
            if out is not None:
                (out / f"message-{number:06}.xml").write_bytes(body)
            else:
                sys.stdout.buffer.write(body.rstrip(b"\n") + b"\n")
    sys.stdout.flush()


@generate.command("queries")
def generate_queries(
    dtd: DtdOption,
    count: CountOption = 10,
    seed: SeedOption = 0,
    root: Annotated[str | None, typer.Option(help="The root element, if the DTD leaves a choice.")] = None,
    max_depth: Annotated[int, typer.Option(help="How many levels a query goes down.")] = 6,
    wildcard: Annotated[float, typer.Option(help="P(*): how often a step is a wildcard.")] = 0.2,
    descendant: Annotated[float, typer.Option(help="P(//): how often a step is a descendant's.")] = 0.2,
    predicates: Annotated[int, typer.Option(help="Value predicates in each query.")] = 0,
    nested: Annotated[int, typer.Option(help="Nested paths in each query.")] = 0,
    values: Annotated[int, typer.Option(help="Distinct values of an element or attribute.")] = 20,
    value_skew: Annotated[float, typer.Option(help="Zipf exponent over the values; 0 is uniform.")] = 0.0,
    name_skew: Annotated[float, typer.Option(help="Zipf exponent over an element's children.")] = 0.0,
    operators: Annotated[str, typer.Option(help="Separated by commas, such as =,<,>=.")] = "=",
    words: Annotated[bool, typer.Option("--words", help="Words for values instead of numbers.")] = False,
    duplicates: Annotated[bool, typer.Option("--duplicates", help="Allow equal queries.")] = False,
) -> None:
    """Make queries that may match such messages, one a line."""
    generator = QueryGenerator(
        load_dtd(dtd, root),
        seed=seed,
        max_depth=max_depth,
        wildcard=wildcard,
        descendant=descendant,
        predicates=predicates,
        nested=nested,
        values=values,
        value_skew=value_skew,
        name_skew=name_skew,
        operators=tuple(operators.split(",")),
        numeric=not words,
        distinct=not duplicates,
    )
    with _progress() as progress:
        for _ in progress.track(range(count), description="queries"):
            print(generator.query())


# -- bench ---------------------------------------------------------------------------------------------


@bench.command("filter")
def bench_filter(
    nitf: Annotated[Path | None, typer.Option(help="A folder with YFilter's NITF workloads.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute instead of a quarter of an hour.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="An experiment by name, or bars, or growth.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the figures and charts.")] = Path("bench-output"),
    as_json: Annotated[bool, typer.Option("--json", help="The figures on the standard output.")] = False,
) -> None:
    """Matching: speed in multiples of raw parsing, growth, churn, loading, memory, recursion.

    Ctrl-C ends it and keeps what is measured.
    """
    from sapwood.bench import filter as experiments  # here, because drawing takes a second to import
    from sapwood.bench.tables import tables

    options = experiments.Options(nitf=nitf, quick=quick, out=out, only=only or ())
    report = experiments.run(options, errors)
    if as_json:
        print(report.to_json())
    else:
        Console().print(*tables(report))
        Console().print(f"\nFigures and charts are in [bold]{out}[/].", highlight=False)
    if report.interrupted:
        raise typer.Exit(130)


# -- demo ----------------------------------------------------------------------------------------------


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the chart.")] = Path("demo-output"),
) -> None:
    """Make up news messages and subscriptions, match them, and show a table and a chart."""
    from sapwood.demo import run  # here, because drawing takes a second to import

    run(Console(), out)


if __name__ == "__main__":
    main()
