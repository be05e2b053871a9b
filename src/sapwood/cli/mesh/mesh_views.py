"""What brokers tell of their mesh, for people: tables, and the tree as a drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

_UNKNOWN = "?"


def show_status(brokers: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of all brokers."""
    table = Table(
        "broker", "parent", "process", "lease", "version", "routes", "in/s", "out/s", "queue", "unsettled"
    )
    table.add_column("dup/late/lost")
    table.add_column("state")
    for broker in brokers:
        status = broker["status"] or {}
        links = list((status.get("links") or {}).values())
        counters = status.get("counters") or {}
        bad = [counters.get(name, 0) for name in ("duplicates", "late", "lost")]
        table.add_row(
            escape(broker["broker"]),
            escape(broker["parent"] or "–"),
            escape(f"{broker.get('host') or ''} {broker.get('process') or ''}".strip() or _UNKNOWN),
            format_age(broker["lease_age"]),
            _format_version(status),
            _sum(links, "routes in"),
            _sum_rates(links, "messages in"),
            _sum_rates(links, "messages out"),
            format_age(_find_oldest(links)) if links else "–",
            str(status.get("unsettled", _UNKNOWN)),
            "/".join(map(str, bad)) if status else _UNKNOWN,
            _describe_state(broker, status),
        )
    return table


def _format_version(status: Mapping[str, Any]) -> str:
    if not status:
        return _UNKNOWN
    waiting = status.get("unconfirmed", 0)
    return f"{status.get('confirmed', _UNKNOWN)}" + (f" ({waiting} wait)" if waiting else "")


def _describe_state(broker: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    if broker["error"]:
        return f"[red]{escape(broker['error'])}[/]"
    if status.get("problem"):
        return f"[red]{escape(status['problem'])}[/]"
    if status.get("draining"):
        return "[yellow]drained[/]"
    closed = [name for name, link in (status.get("links") or {}).items() if not link.get("open")]
    return f"[red]no link to {escape(', '.join(closed))}[/]" if closed else "[green]ok[/]"


def _sum(links: Sequence[Mapping[str, Any]], name: str) -> str:
    return f"{sum(link.get(name) or 0 for link in links):,}"


def _sum_rates(links: Sequence[Mapping[str, Any]], name: str) -> str:
    return f"{sum((link.get('rates') or {}).get(name) or 0 for link in links):.1f}"


def _find_oldest(links: Sequence[Mapping[str, Any]]) -> float:
    backlogs = [(link.get("transport") or {}).get("backlog") or {} for link in links]
    return max((backlog.get("oldest_age") or 0.0 for backlog in backlogs), default=0.0)


# -- the tree ----------------------------------------------------------------------------------------------


def draw_tree(topology: Mapping[str, Any]) -> Tree:
    """Return the tree of brokers with the traffic of its links, upwards and downwards."""
    brokers = {each["broker"]: each for each in topology["brokers"]}
    links = {(each["sender"], each["receiver"]): each for each in topology["links"]}
    root = topology["root"]
    if root is None:
        return Tree("no broker has joined yet")
    drawing = Tree(_name_broker(brokers[root]), guide_style="dim")
    waiting = [(root, drawing)]
    while waiting:
        name, at = waiting.pop()
        for child in [each for each, parent in topology["parents"].items() if parent == name]:
            up, down = links.get((child, name), {}), links.get((name, child), {})
            label = f"{_name_broker(brokers[child])}\n  ↑ {_show_link(up)}\n  ↓ {_show_link(down)}"
            waiting.append((child, at.add(label)))
    return drawing


def _name_broker(broker: Mapping[str, Any]) -> str:
    count = broker["subscriptions"]
    what = _UNKNOWN if count is None else f"{count:,}"
    trouble = f"  [red]{escape(broker['error'])}[/]" if broker["error"] else ""
    return f"[bold]{escape(broker['broker'])}[/]  {what} subscriptions{trouble}"


def _show_link(link: Mapping[str, Any]) -> str:
    if link.get("open") is None:
        return "not known"
    if not link["open"]:
        return f"[red]broken[/], {link['outbox']:,} wait"
    parts = [
        f"{link['messages_per_second']:6.1f} messages/s",
        f"{format_bytes(link['bytes_per_second']):>8}/s",
        f"queue {format_age(link['queue_age'])}",
        _count_routes(link) if link["table_known"] else "[yellow]everything is sent[/]",
        *_show_format(link),
        *([f"{link['outbox']:,} to send"] if link["outbox"] else []),
        *([f"{link['unsettled']:,} unsettled"] if link["unsettled"] else []),
        *([f"[yellow]table {link['table_lag']} behind[/]"] if link["table_lag"] else []),
    ]
    return "  ".join(parts)


def _show_format(link: Mapping[str, Any]) -> list[str]:
    """Return the format of a link, and how much smaller than its text a message is in it."""
    if not link.get("text_bytes"):
        return []
    shown = [f"{link['format']} {100 * link['body_bytes'] / link['text_bytes']:.0f} %"]
    cut = link.get("cut_bytes") or 0
    return shown + ([f"cut {100 * cut / (cut + link['text_bytes']):.0f} %"] if cut else [])


def _count_routes(link: Mapping[str, Any]) -> str:
    generalised = link.get("generalised")
    return f"{link['routes']:,} routes" + (f", {generalised:,} generalised" if generalised else "")


# -- tables, subscriptions, messages -----------------------------------------------------------------------


def show_routes(page: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield what is wanted on a side."""
    side = f"on the side of {page['link']}" if page["link"] else "by its own subscriptions"
    count = page["count"]
    yield f"{count:,} {'route' if count == 1 else 'routes'} wanted {escape(side)} at {escape(page['broker'])}"
    table = Table("stream", "condition", "exact")
    for route in page["routes"]:
        stream = "any" if route["stream"] is None else route["stream"] or "none"
        table.add_row(escape(stream), escape(route["condition"]), "yes" if route["exact"] else "no")
    if count:
        yield table


def explain_subscription(found: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield where a subscription stands."""
    for host in found["hosts"]:
        state = "active" if host["active"] else "paused"
        sure = "confirmed by all brokers" if host["confirmed"] else "[yellow]not confirmed by all brokers[/]"
        yield (
            f"[bold]{escape(found['id'])}[/] is hosted at [bold]{escape(host['broker'])}[/], {state} since "
            f"version {host['version']}, {sure}"
        )
        yield f"  {escape(host['query'])}"
        for route in host["routes"]:
            stream = "" if route["stream"] is None else f" in stream {route['stream'] or 'none'}"
            yield f"  route {escape(route['condition'])}{escape(stream)}"
            if route.get("reads") is not None:
                yield f"    reads {escape(', '.join(route['reads']) or 'nothing but whether it is met')}"
        table = Table("broker", "sends it to", "has its routes", "table version")
        for broker in host["brokers"]:
            has = {True: "[green]yes[/]", False: "[red]no[/]", None: escape(broker["error"] or "?")}
            version = broker.get("table_version")
            table.add_row(
                escape(broker["broker"]),
                escape(broker["side"] or "–"),
                has[broker["has"]],
                "–" if version is None else str(version),
            )
        yield table
        yield from _name_entries(host["brokers"])
        yield from _name_cuts(host["brokers"])
    for name, reason in found["silent"].items():
        yield f"[red]{escape(name)}: {escape(reason)}[/]"


def _name_entries(brokers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the generalised entries that stand for the routes of a subscription."""
    for broker in brokers:
        for entry in broker.get("entries") or ():
            yield f"  {escape(broker['broker'])} has it as {escape(entry['condition'])}"


def _name_cuts(brokers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is cut from messages on their way to the host, and why or why not."""
    for broker in brokers:
        for cut in broker.get("projection") or ():
            link = f"{broker['broker']} → {broker['side']}, stream {cut['stream'] or 'none'}"
            if cut["is_cut"]:
                saved = "not measured yet" if cut["saved"] is None else f"{cut['saved']:.0%} of the bytes"
                took = "" if cut["seconds"] is None else f" in {cut['seconds'] * 1e6:.0f} µs"
                yield f"  {escape(link)}: cut to {escape(', '.join(cut['reads']))} ({saved}{took})"
            else:
                yield f"  {escape(link)}: whole messages, since {escape(cut['reason'])}"


def show_trace(found: Mapping[str, Any]) -> Iterator[str | Tree]:
    """Yield the way of a message, hop by hop."""
    for message in found["messages"]:
        where = f"published at [bold]{escape(message['source'])}[/], number {message['number']}"
        drawing = Tree(f"[bold]{escape(found['id'])}[/] {where}", guide_style="dim")
        branches = {None: drawing}
        for hop in message["hops"]:
            at = branches.get(hop["came_by"], drawing)
            branches[hop["broker"]] = at.add("\n".join(_show_hop(hop)))
        yield drawing
    for refused in found["refused"]:
        place = f" (line {refused['line']}, column {refused['column']})" if refused["line"] else ""
        told = (
            f"refused at {refused['broker']}, {format_time(refused['received'])}: {refused['reason']}{place}"
        )
        yield f"[red]{escape(told)}[/]"
    for name, reason in found["silent"].items():
        yield f"[red]{escape(name)}: {escape(reason)}[/]"


def _show_hop(hop: Mapping[str, Any]) -> Iterator[str]:
    came = f"from {hop['came_by']}" if hop["came_by"] else "from its publisher"
    matched = f"{hop['deliveries']:,} deliveries" if hop["matched_here"] else "only passed"
    yield (
        f"[bold]{escape(hop['broker'])}[/]  {format_time(hop['received'])} {escape(came)}, "
        f"subscriptions of version {hop['version']}, {matched}"
    )
    if hop["chosen"] is None:
        yield "  [yellow]it is not decided yet whom it is for[/]"
    for link in hop["chosen"] or ():
        named = "; ".join(route["condition"] for route in link["routes"])
        more = link["count"] - len(link["routes"])
        why = (
            f"{named}{f' and {more} more' if more else ''}"
            if named
            else "no route of now; the table was open"
        )
        yield f"  → {escape(link['link'])}: {escape(why)}"
    if hop["not_chosen"]:
        yield f"  [dim]not to {escape(', '.join(hop['not_chosen']))}: nobody there wants it[/]"


def show_findings(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a check has found."""
    for finding in found["findings"]:
        color = "red" if finding["severity"] == "error" else "yellow"
        what = f"{escape(finding['where'])}: {escape(finding['what'])}"
        yield f"[{color}]{finding['severity']}:[/] {what}; {escape(finding['advice'])}"
    if found["consistent"]:
        yield f"[green]the mesh of {found['brokers']} brokers is consistent[/]"


# -- figures -----------------------------------------------------------------------------------------------


def format_age(seconds: float | None) -> str:
    """Return an age in few characters."""
    if seconds is None:
        return "–"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6_000 else f"{seconds / 3_600:.0f} h"


def format_bytes(count: float | None) -> str:
    """Return a number of bytes in few characters."""
    if count is None:
        return _UNKNOWN
    for unit in ("B", "kB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} GB"


def format_time(seconds: float) -> str:
    """Return a time of the day, with milliseconds, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3]
