"""`sapwood generate`: random messages, queries, transformations and joins."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import typer

from sapwood.cli.common.console import fail, make_progress
from sapwood.errors import ArgumentError, QueryError
from sapwood.lang.literals.durations import parse_window
from sapwood.lang.xscl.compiler import compile_join
from sapwood.workload import (
    FeedGenerator,
    JoinGenerator,
    JoinSchema,
    MessageGenerator,
    QueriesExhausted,
    QueryGenerator,
    TransformationGenerator,
    dtds,
    feed_schema,
    flat_schema,
    levels_schema,
    load_dtd,
)

generate = typer.Typer(
    help="Generate messages, queries and transformations from a DTD, items of feeds, and joins.",
    no_args_is_help=True,
)

DtdOption = Annotated[
    str, typer.Option("--dtd", help=f"A DTD file, or one that is shipped: {', '.join(dtds())}.")
]
SeedOption = Annotated[int, typer.Option(help="The same seed gives the same output.")]
CountOption = Annotated[int, typer.Option("--count", "-c", min=1, help="The number to generate.")]
RootOption = Annotated[str | None, typer.Option(help="The root element, if the DTD allows several.")]
ValuesOption = Annotated[int, typer.Option(help="Distinct values of an element or attribute.")]
ValueSkewOption = Annotated[float, typer.Option(help="Zipf exponent over the values; 0 is uniform.")]
WordsOption = Annotated[bool, typer.Option("--words", help="Words as values instead of numbers.")]
DuplicatesOption = Annotated[bool, typer.Option("--duplicates", help="Allow equal queries.")]
DescendantOption = Annotated[float, typer.Option(help="P(//): the probability of a descendant step.")]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_WORD = re.compile(r"\w+")


@generate.command("messages")
def generate_messages(
    dtd: DtdOption,
    count: CountOption = 10,
    seed: SeedOption = 0,
    root: RootOption = None,
    max_depth: Annotated[int, typer.Option(help="The maximal nesting of elements.")] = 6,
    max_repeats: Annotated[int, typer.Option(help="The maximal number of repetitions for * and +.")] = 3,
    attribute_probability: Annotated[
        float | None,
        typer.Option(help="The probability of an optional attribute; by default drawn for each."),
    ] = None,
    values: ValuesOption = 20,
    value_skew: ValueSkewOption = 0.0,
    words: WordsOption = False,
    out: Annotated[Path | None, typer.Option(help="A folder for one file per message.")] = None,
) -> None:
    """Generate messages that are valid against a DTD, one per line."""
    generator = _create(
        MessageGenerator,
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
        _make_folder(out)
    numbers = itertools.count()

    def write(body: bytes) -> None:
        if out is not None:
            _write_file(out / f"message-{next(numbers):06}.xml", body)
        else:
            _write_message(body)

    _write_each(generator, count, "messages", write, to_files=out is not None)


def _create(make: Callable[_P, _T], *arguments: _P.args, **parameters: _P.kwargs) -> _T:
    """Call a function whose parameters have the names of options; its errors then name the options."""
    try:
        return make(*arguments, **parameters)
    except ArgumentError as error:
        subject, must, rest = str(error).partition(" must ")

        def to_option(word: re.Match[str]) -> str:
            return f"--{word[0].replace('_', '-')}" if word[0] in parameters else word[0]

        fail(_WORD.sub(to_option, subject) + must + rest)


def _write_each(
    generator: Iterator[_T], count: int, what: str, write: Callable[[_T], None], *, to_files: bool = False
) -> None:
    """Write the next `count` items of a generator, with a progress bar."""
    try:
        with make_progress(writing=not to_files) as progress:
            for _ in progress.track(range(count), description=what):
                write(next(generator))
        sys.stdout.flush()
    except QueriesExhausted as error:
        repeats = ", or equal ones with --duplicates" if error.repeatable else ""
        fail(f"{error.reason}: {error.remedy}{repeats}")


def _write_message(body: bytes) -> None:
    sys.stdout.buffer.write(body.rstrip(b"\n") + b"\n")


def _write_file(path: Path, body: bytes) -> None:
    try:
        path.write_bytes(body)
    except OSError as error:
        fail(f"--out: the file {str(path)!r} cannot be written: {error.strerror}")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"--out: the folder {str(path)!r} cannot be created: {error.strerror}")


@generate.command("queries")
def generate_queries(
    dtd: DtdOption,
    count: CountOption = 10,
    seed: SeedOption = 0,
    root: RootOption = None,
    max_depth: Annotated[int, typer.Option(help="The maximal depth of a query.")] = 6,
    wildcard: Annotated[float, typer.Option(help="P(*): the probability of a wildcard step.")] = 0.2,
    descendant: DescendantOption = 0.2,
    predicates: Annotated[int, typer.Option(help="Value predicates in each query.")] = 0,
    nested: Annotated[int, typer.Option(help="Nested paths in each query.")] = 0,
    values: ValuesOption = 20,
    value_skew: ValueSkewOption = 0.0,
    name_skew: Annotated[float, typer.Option(help="Zipf exponent over an element's children.")] = 0.0,
    operators: Annotated[str, typer.Option(help="Separated by commas, such as =,<,>=.")] = "=",
    words: WordsOption = False,
    duplicates: DuplicatesOption = False,
) -> None:
    """Generate queries that can match such messages, one per line."""
    generator = _create(
        QueryGenerator,
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
    _write_each(generator, count, "queries", print)


@generate.command("transformations")
def generate_transformations(
    dtd: DtdOption,
    count: CountOption = 10,
    seed: SeedOption = 0,
    root: RootOption = None,
    binding_depth: Annotated[int, typer.Option(help="The maximal depth of a binding path.")] = 3,
    predicate_paths: Annotated[int, typer.Option(help="Conditions of each where clause.")] = 1,
    return_paths: Annotated[int, typer.Option(help="Paths in each return clause.")] = 2,
    relative_depth: Annotated[int, typer.Option(help="The maximal depth of predicate and return paths.")] = 2,
    descendant: DescendantOption = 0.2,
    values: ValuesOption = 20,
    value_skew: ValueSkewOption = 0.0,
    words: WordsOption = False,
    duplicates: DuplicatesOption = False,
) -> None:
    """Generate for-where-return queries that can match such messages, one per line."""
    generator = _create(
        TransformationGenerator,
        load_dtd(dtd, root),
        seed=seed,
        binding_depth=binding_depth,
        predicate_paths=predicate_paths,
        return_paths=return_paths,
        relative_depth=relative_depth,
        descendant=descendant,
        values=values,
        value_skew=value_skew,
        numeric=not words,
        distinct=not duplicates,
    )
    _write_each(generator, count, "transformations", print)


@generate.command("feeds")
def generate_feeds(
    count: CountOption = 10,
    seed: SeedOption = 0,
    channels: Annotated[int, typer.Option(help="The number of channels.")] = 418,
    channel_skew: Annotated[float, typer.Option(help="Zipf exponent of the channels' popularity.")] = 0.8,
    reposts: Annotated[float, typer.Option(help="The share of items that a channel repeats.")] = 0.02,
    crossposts: Annotated[
        float, typer.Option(help="The share of items repeated from another channel.")
    ] = 0.03,
    columns: Annotated[float, typer.Option(help="The share of items with a recurring title.")] = 0.01,
) -> None:
    """Generate items of web feeds, one per line, to be joined by equal titles or descriptions."""
    generator = _create(
        FeedGenerator,
        seed=seed,
        channels=channels,
        channel_skew=channel_skew,
        reposts=reposts,
        crossposts=crossposts,
        columns=columns,
    )
    _write_each(generator, count, "items", _write_message)


class Schema(StrEnum):
    """The schema of the messages that are joined."""

    FLAT = "flat"
    LEVELS = "levels"
    FEED = "feed"


@generate.command("joins")
def generate_joins(
    schema: Annotated[
        Schema, typer.Option(help="flat: leaves below a root; levels: another level; feed: items of feeds.")
    ] = Schema.FEED,
    count: CountOption = 10,
    seed: SeedOption = 0,
    leaves: Annotated[int, typer.Option(help="Leaves of the flat schema.")] = 6,
    fan_out: Annotated[int, typer.Option(help="Children of an element of the schema with levels.")] = 4,
    equalities: Annotated[
        int | None,
        typer.Option(help="The maximum in a query; by default 4 with levels, else the number of leaves."),
    ] = None,
    skew: Annotated[float, typer.Option(help="Zipf exponent over the number of equalities.")] = 0.8,
    window: Annotated[str, typer.Option(help="The maximal time between the messages: 1 day, …")] = "INF",
    stream: Annotated[str, typer.Option(help="The stream of both messages.")] = "S",
) -> None:
    """Generate queries that join two messages, one per line; queries may repeat."""
    _check_window(window)
    _check_stream(stream)
    most = 4 if schema is Schema.LEVELS and equalities is None else equalities
    generator = _create(
        JoinGenerator,
        _schema(schema, leaves, fan_out),
        seed=seed,
        equalities=most,
        skew=skew,
        window=window,
        stream=stream,
    )
    _write_each(generator, count, "joins", print)


def _check_window(window: str) -> None:
    """Exit with an error for a text that is not the window of a join."""
    try:
        _, end = parse_window(window, 0)
        valid = not window[end:].strip()
    except QueryError:
        valid = False
    if not valid:
        fail(f"--window must be a length of time such as '60 s' or '1 day', or INF, not {window!r}")


def _check_stream(stream: str) -> None:
    """Exit with an error for a text that is not the name of a stream; empty means no stream."""
    try:
        join = compile_join(f"{stream}//a->v JOIN{{v=w, INF}} {stream}//a->w")
        valid = join.streams == (stream,)
    except QueryError:
        valid = False
    if not valid:
        fail(f"--stream must be a name that is no keyword of joins, not {stream!r}")


def _schema(schema: Schema, leaves: int, fan_out: int) -> JoinSchema:
    if schema is Schema.FLAT:
        return _create(flat_schema, leaves=leaves)
    return _create(levels_schema, fan_out=fan_out) if schema is Schema.LEVELS else feed_schema()
