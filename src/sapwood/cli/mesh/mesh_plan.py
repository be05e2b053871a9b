"""`sapwood mesh plan`: what a mesh would cost, before it is built."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.cli.common.console import finish, make_progress, note, report, write_line
from sapwood.cli.common.extras import require_extra
from sapwood.cli.common.options import MESSAGES_HELP, JsonOption, NamespacesOption, parse_namespaces
from sapwood.cli.common.options import TenantOption as StoreTenantOption
from sapwood.cli.mesh.plan_inputs import (
    SiteOption,
    SubscriptionReader,
    find_tree,
    parse_publishers,
    parse_site,
    read_sample,
)
from sapwood.errors import ArgumentError

if TYPE_CHECKING:
    from sapwood.cli.mesh.plan_views import PlanReport
    from sapwood.mesh.core.topology import Topology
    from sapwood.mesh.planning.memory_forecast import NodeForecast
    from sapwood.mesh.planning.placement import Placement
    from sapwood.mesh.planning.planned_subscription import PlannedSubscription

MESSAGES = 2_000
"""of a sample, with which a share is known to two points"""
_MOST_BROKERS = 200


class PlacementName(StrEnum):
    """Which subscriptions of a store are hosted together."""

    LOCAL = "local"
    EXCLUSIVE = "exclusive"
    LEAST = "least"


def plan(
    sample: Annotated[
        list[str],
        typer.Argument(
            metavar="SAMPLE...",
            help=f"Messages such as the mesh will get. {MESSAGES_HELP} SITE=PATH: published at that site.",
        ),
    ],
    site: Annotated[
        list[str] | None,
        typer.Option(
            "--site",
            metavar="NAME[:PARENT]=SOURCE",
            help="A site and its subscriptions: a store, or a file or folder of queries; for each site.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="A store whose subscriptions are to be placed: a file, or a URL."
        ),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option("--queries", metavar="FILE", help="A file or folder of queries instead of a store."),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", min=2, max=_MOST_BROKERS, help="How many there are, around the first one."),
    ] = None,
    tree: Annotated[
        Path | None,
        typer.Option(
            "--tree",
            metavar="FILE",
            help="BROKER[:PARENT] in each line, or the folder of 'sapwood mesh init'; by default a star.",
        ),
    ] = None,
    placement: Annotated[
        list[PlacementName] | None,
        typer.Option("--placement", help="local, exclusive or least; may be repeated, by default all."),
    ] = None,
    published_at: Annotated[
        list[str] | None,
        typer.Option(
            "--published-at",
            metavar="SITE[=WEIGHT]",
            help="Where messages are published; may be repeated, by default evenly at all sites.",
        ),
    ] = None,
    stream: Annotated[
        str, typer.Option(metavar="NAME", help="The stream of the messages.", show_default=False)
    ] = "",
    limit: Annotated[
        int, typer.Option(min=1, help="Use this many messages of the sample, drawn at random.")
    ] = MESSAGES,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Whether memory is measured, which takes seconds.")
    ] = True,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FOLDER",
            help="Write the subscriptions of each placement and site as JSON lines.",
        ),
    ] = None,
    namespace: NamespacesOption = None,
    tenant: StoreTenantOption = "",
    as_json: JsonOption = False,
) -> None:
    """Predict the traffic of links and the memory of brokers from a sample of messages and subscriptions.

    Either each --site has its own subscriptions, or those of one --store are placed at --brokers N or at the
    brokers of a --tree in several ways, which are compared. Tells when routing will not help.
    """
    sites = [parse_site(text) for text in site or []]
    _check_options(sites, store, queries, brokers, tree, placement)
    if write is not None and write.exists():
        raise ArgumentError(f"{str(write)!r} is there already: remove it, or give another --write")
    parents = find_tree(tree, sites, brokers)
    with require_extra("mesh", "sapwood mesh plan"):
        from sapwood.cli.mesh.plan_views import PlacementForecast, PlanReport
        from sapwood.mesh.core.topology import build_tree
        from sapwood.mesh.planning.traffic_forecast import TrafficSample

    topology = build_tree(parents)
    traffic = TrafficSample(topology, parse_publishers(published_at or []))
    reader = SubscriptionReader(tenant, parse_namespaces(namespace))
    messages, read = read_sample(sample, parents, limit)
    if sites:
        subscriptions, placements = _read_sites(reader, sites, list(parents))
    else:
        found = reader.read_store(store) if store is not None else reader.read_files(queries or "")
        subscriptions = list(found)
        wanted = list(dict.fromkeys(each.value for each in placement or ()))
        placements = _place(subscriptions, len(parents), [each.body for each in messages], wanted)
    refused = reader.refusals.finish()
    if not subscriptions:
        raise ArgumentError("there are no active subscriptions, so that nothing would cross any link")
    with make_progress() as progress:
        traffic.count(subscriptions, placements, progress.track(messages, description="matching"), stream)
    for refusal in traffic.refused:
        report(refusal.name, str(refusal.error))
    made = traffic.forecast()
    nodes = _forecast_nodes(topology, subscriptions, placements, memory)
    forecasts = [PlacementForecast(*each) for each in zip(placements, made, nodes, strict=True)]
    result = PlanReport(
        parents,
        traffic.publishers,
        stream,
        len(subscriptions),
        traffic.messages,
        read,
        traffic.bytes,
        len(traffic.refused),
        forecasts,
    )
    if write is not None:
        _write_placements(write, list(parents), subscriptions, placements)
    if as_json:
        write_line(result.to_json())
    else:
        _print(result)
    finish(traffic.messages, refused + len(traffic.refused))


def _print(result: PlanReport) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for part in result.show():
        console.print(part, soft_wrap=isinstance(part, str))


def _check_options(
    sites: Sequence[SiteOption],
    store: str | None,
    queries: str | None,
    brokers: int | None,
    tree: Path | None,
    placement: Sequence[PlacementName] | None,
) -> None:
    given = [bool(sites), store is not None, queries is not None]
    if sum(given) != 1:
        raise ArgumentError(
            "subscriptions come from --site NAME=SOURCE for each site, or from one --store URL or --queries "
            f"FILE with --brokers N or --tree FILE; here are {'several' if any(given) else 'none'} of these"
        )
    if sites and (brokers is not None or placement):
        raise ArgumentError("--brokers and --placement go with --store or --queries: sites have their own")
    if not sites and brokers is None and tree is None:
        raise ArgumentError(
            "--brokers N or --tree FILE is missing: it says where subscriptions may be placed"
        )


def _read_sites(
    reader: SubscriptionReader, sites: Sequence[SiteOption], names: Sequence[str]
) -> tuple[list[PlannedSubscription], list[Placement]]:
    """Return the subscriptions of all sites, and where each is."""
    from sapwood.mesh.planning.placement import AS_IT_IS, Placement

    subscriptions: list[PlannedSubscription] = []
    places: list[int] = []
    for site in sites:
        subscriptions += reader.read(site.source)
        places += [names.index(site.name)] * (len(subscriptions) - len(places))
    return subscriptions, [Placement(AS_IT_IS, places)]


def _place(
    subscriptions: Sequence[PlannedSubscription],
    sites: int,
    sample: Sequence[bytes],
    wanted: Sequence[str],
) -> list[Placement]:
    """Return the placements that are wanted, or else all that are possible."""
    from sapwood.mesh.planning.placement import LOCAL, PLACEMENTS, has_subscribers, place

    if not wanted:
        wanted = [name for name in PLACEMENTS if name != LOCAL or has_subscribers(subscriptions)]
        if LOCAL not in wanted:
            note("subscriptions have one subscriber or none: there is no placement 'local' to compare")
    return [place(name, subscriptions, sites, sample) for name in wanted]


def _forecast_nodes(
    topology: Topology,
    subscriptions: Sequence[PlannedSubscription],
    placements: Sequence[Placement],
    is_measured: bool,
) -> list[list[NodeForecast]]:
    """Return, by placement, what brokers hold and, if it is to be measured, the memory they take for it."""
    from sapwood.mesh.planning.memory_forecast import NodeContents, NodeForecast, collect_contents

    with require_extra("mesh", "sapwood mesh plan"):
        from sapwood.serve.mesh.memory_probe import measure_parts

    progress = make_progress()
    task = progress.add_task("measuring memory", total=len(placements) * len(topology))

    def forecast_one(item: tuple[str, NodeContents]) -> NodeForecast:
        site, contents = item
        taken = contents.forecast_bytes(measure_parts) if is_measured else None
        progress.advance(task)
        return NodeForecast(site, len(contents.subscriptions), contents.count_routes(), taken)

    with progress, ThreadPoolExecutor(os.cpu_count()) as pool:
        return [
            list(pool.map(forecast_one, collect_contents(topology, subscriptions, placement).items()))
            for placement in placements
        ]


def _write_placements(
    folder: Path,
    sites: Sequence[str],
    subscriptions: Sequence[PlannedSubscription],
    placements: Sequence[Placement],
) -> None:
    """Write JSON lines for each placement and site, as `sapwood subscriptions import` reads them."""
    for placement in placements:
        texts: dict[str, list[str]] = {site: [] for site in sites}
        for each, number in zip(subscriptions, placement.sites, strict=True):
            line: dict[str, object] = {"id": each.id, "query": each.query}
            if each.subscriber:
                line["subscriber"] = each.subscriber
            if each.streams:
                line["streams"] = list(each.streams)
            texts[sites[number]].append(json.dumps(line, ensure_ascii=False) + "\n")
        for site, lines in texts.items():
            path = folder / placement.name.replace(" ", "-") / f"{site}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(lines), "utf-8")
