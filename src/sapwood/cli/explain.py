"""`sapwood explain`: show how a query is evaluated."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood import MessageError
from sapwood.cli.common.console import fail, write_line
from sapwood.cli.common.delivery_output import report_failures
from sapwood.cli.common.options import JsonOption, NamespacesOption, parse_namespaces
from sapwood.cli.common.query_loader import load_queries
from sapwood.cli.common.query_warnings import QueryWarnings
from sapwood.cli.common.relational_options import Engine, require_duckdb
from sapwood.input_files import NamedMessage, read_messages
from sapwood.lang.xpath.error_hints import set_other_language_hints

if TYPE_CHECKING:
    from sapwood import Broker, Explanation, JoinExplanation, PlanExplanation, Why

_THIS = object()


def explain(
    query: Annotated[str, typer.Argument(help="XPath 1.0, a for-where-return query, or an XSCL join.")],
    message: Annotated[
        str | None,
        typer.Option(
            help="Also show why this message matches a filter, or the result of a transformation or join."
        ),
    ] = None,
    among: Annotated[
        str | None, typer.Option(metavar="QUERIES", help="Other queries, with which it may share work.")
    ] = None,
    dtd: Annotated[
        str | None, typer.Option(help="A DTD that messages follow: a file, or the name of a shipped one.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="The relational engine's view: a filter as rules.")
    ] = Engine.AUTOMATON,
    namespace: NamespacesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how a query is evaluated: pattern and paths or plan, what is shared, what lxml evaluates, and
    why.
    """
    if engine is Engine.RELATIONAL:
        if message or among or dtd:
            fail("--message, --among and --dtd go with the automaton: leave out --engine relational")
        _explain_form(query, parse_namespaces(namespace), as_json)
        return
    from sapwood import Broker
    from sapwood.workload import load_dtd

    graph = load_dtd(dtd) if dtd else None
    made: list[bytes] = []
    with Broker(parse_namespaces(namespace), dtd=graph) as broker:
        broker.subscribe(_THIS, query)
        if among:
            load_queries(broker.subscribe_many, among)
        parts: list[Explanation | PlanExplanation | JoinExplanation | Why] = [broker.explain(_THIS)]
        for found in read_messages([message] if message else []):
            if _THIS in broker.filters:
                parts.append(_why(broker, found))
                continue
            deliveries = broker.publish(found.body, found.name)
            bodies = [d.body for d in deliveries if d.subscription == _THIS]
            report_failures(found.name, [replace(f, subscription=query) for f in deliveries.failures])
            made += bodies
            if not bodies:
                parts.append(_why(broker, found))
        filters = _THIS in broker.filters
    query_warnings = QueryWarnings({}, parse_namespaces(namespace))
    query_warnings.check("the query", query)
    query_warnings.finish()
    for part in parts:
        print(json.dumps(asdict(part), ensure_ascii=False) if as_json else f"{part}\n")
    for body in made:
        print(json.dumps({"made": body.decode()}) if as_json else body.decode())
    if message and not made and not (parts[1:] and filters):
        print(json.dumps({"made": None}) if as_json else "the message gives no result")


def _why(broker: Broker, message: NamedMessage) -> Why:
    try:
        return broker.why(_THIS, message.body)
    except MessageError as error:
        fail(f"{message.name}: {error}")


def _explain_form(query: str, namespaces: dict[str, str], as_json: bool) -> None:
    from sapwood.cli.common import rule_output

    hint = "the relational engine evaluates filters only: omit --engine relational"
    set_other_language_hints(hint, hint)
    with require_duckdb("sapwood explain --engine relational"):
        form = rule_output.compile_rules(query, namespaces)
        if as_json:
            write_line(rule_output.to_record(query, form))
        else:
            print(rule_output.to_text(query, form))
