"""What must hold of a simulated mesh that has come to rest: deliveries, and what crosses links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sapwood.mesh.core.frames import MessageKey
from sapwood.mesh.sim.world import Period, SimPublication, World


def find_due(world: World) -> set[tuple[int, MessageKey]]:
    """Return the deliveries that must have been made, as subscriptions and messages.

    A message is due if it was published after all brokers had the subscription's query and, if that has
    another query now or is gone, was settled before: then it was stored at the host with this query.
    """
    due: set[tuple[int, MessageKey]] = set()
    answered = [
        publication
        for publication in world.publications.values()
        if publication.published_at is not None and publication.key.source not in world.removed
    ]
    for subscription in world.subscriptions.values():
        for period in subscription.periods:
            if period.confirmed_at is not None:
                due.update((subscription.number, key) for key in _find_due_in(world, period, answered))
    return due


def _find_due_in(world: World, period: Period, publications: list[SimPublication]) -> Iterator[MessageKey]:
    since, until = period.confirmed_at, period.until
    for publication in publications:
        published, settled = publication.published_at, publication.settled_at
        assert since is not None
        assert published is not None
        is_in_time = until is None or (settled is not None and settled < until)
        if since < published and is_in_time and period.query in world.workload.matching(publication.document):
            yield publication.key


def check_deliveries(world: World) -> list[str]:
    """Return what is wrong with the deliveries: missing, repeated, unwanted, out of order, late, or different
    from those of the whole message."""
    problems: list[str] = []
    made: Counter[tuple[int, MessageKey]] = Counter()
    last: dict[tuple[int, str], int] = {}
    for broker in (*world.former, *world.brokers.values()):
        for delivery in broker.storage.deliveries:
            subscription = world.subscriptions[delivery.subscription]
            made[delivery.subscription, delivery.key] += 1
            order = delivery.subscription, delivery.key.source
            if delivery.key.number < last.get(order, 0):
                problems.append(f"order: {delivery} comes after number {last[order]} at {broker.name}")
            last[order] = max(delivery.key.number, last.get(order, 0))
            document, query = world.publications[delivery.key].document, delivery.query
            asked = any(period.query == query for period in subscription.periods)
            if not asked or query not in world.workload.matching(document):
                problems.append(f"unwanted: {delivery}")
            elif world.workload.results(delivery.document, query) != world.workload.results(document, query):
                problems.append(f"different: {delivery}, of document {document}")
        if broker.late:
            problems.append(f"late: {broker.late} messages at {broker.name}")
    problems += [f"twice: {key} of subscription {number}" for (number, key), n in made.items() if n > 1]
    for number, key in sorted(find_due(world)):
        if not made[number, key]:
            document, host = world.publications[key].document, world.subscriptions[number].host
            problems.append(f"missing: {key}, document {document}, for subscription {number} at {host}")
    return problems


def find_links(world: World, key: MessageKey) -> set[tuple[str, str]]:
    """Return the links that a message has to cross: those on the way to a broker of which a route holds."""
    tree, workload = world.directory.topology, world.workload
    holding = set(workload.holding(world.publications[key].document))
    links: set[tuple[str, str]] = set()
    for name, broker in world.brokers.items():
        queries = dict.fromkeys(broker.storage.subscriptions.values())
        if any(route.key in holding for query in queries for route in workload.routes(query)):
            at = key.source
            while at != name:
                hop = tree.next_hops(at)[name]
                links.add((at, hop))
                at = hop
    return links


def check_routing(world: World, keys: set[MessageKey], is_exact: bool = True) -> list[str]:
    """Return what is wrong with the links that messages have crossed since `world.frames` was cleared.

    If tables are not exact, messages may cross more links than they have to, but each of them once.
    """
    expected = Counter((*link, key) for key in keys for link in find_links(world, key))
    extra, missing = world.frames - expected, expected - world.frames
    if not is_exact:
        extra -= Counter(list(world.frames.keys() - expected.keys()))
    if not extra and not missing:
        return []
    return [f"messages on links: {len(extra)} too many, {len(missing)} too few: {[*extra, *missing][:3]}"]


def find_unrest(world: World) -> str | None:
    """Return what is not at rest; None if everything is."""
    for name, broker in world.brokers.items():
        node = broker.node
        if node is None:
            return f"{name} does not run"
        if node.topology.version != world.directory.topology.version:
            return f"{name} has topology {node.topology.version}, not {world.directory.topology.version}"
        shut = [n for n in node.topology.neighbours(name) if not node.is_open(n) or node.outbox(n)]
        if node.waiting or node.unsettled() or node.unconfirmed or shut or node.table.unknown_links():
            return (
                f"{name}: waiting {node.waiting}, unsettled {node.unsettled()}, unconfirmed"
                f" {node.unconfirmed}, links {shut}, without table {node.table.unknown_links()}"
            )
        if any(told.stale for told in node.table.told.values()):
            return f"{name}: routes are to be removed"
    return None
