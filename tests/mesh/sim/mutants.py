"""Nodes with a fault each, which the simulator must find out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest import MonkeyPatch

from sapwood.lang.pattern import And, Condition, Has, Not, Or, Path, Step, all_of, any_of, negation
from sapwood.mesh.core.actions import Release, Reply
from sapwood.mesh.core.frames import MessageFrame, MessageKey
from sapwood.mesh.core.links.link_protocol import LinkProtocol
from sapwood.mesh.core.links.link_state import InboundLink, OutboundLink
from sapwood.mesh.core.messages.journal import Journal
from sapwood.mesh.core.messages.message_pipeline import MessagePipeline, Work
from sapwood.mesh.core.messages.number_sets import SortedNumbers
from sapwood.mesh.core.messages.settlement import Settlement
from sapwood.mesh.core.messages.source_history import SourceHistory
from sapwood.mesh.core.node_context import NodeContext
from sapwood.mesh.core.tables.confirmations import Confirmations
from sapwood.mesh.core.tables.route_table import RouteTable
from sapwood.mesh.core.tables.table_exchange import TableExchange
from sapwood.mesh.routing.route import Route
from sapwood.mesh.sim.broker_workload import BrokerWorkload, SimQuery, broker_workload


@dataclass(frozen=True)
class Mutant:
    """A fault, and the first of the seeds that are to find it out."""

    name: str
    apply: Callable[[MonkeyPatch], None]
    first: int = 0
    workload: Callable[[], BrokerWorkload] = broker_workload

    def __str__(self) -> str:
        return self.name


def _patch(owner: type, name: str, replacement: Any) -> Callable[[MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, replacement)


# -- messages --------------------------------------------------------------------------------------------


def _take_without_looking(
    self: MessagePipeline, name: str, inbound: InboundLink, frame: MessageFrame
) -> None:
    self._settlement.learn_floor(frame.key.source, frame.floor)
    work = Work(0, frame.key, frame.content is not None, self._context.reset, name, inbound.epoch)
    self._match(work, frame.content, True)


def _mark_handled_as_stored(self: NodeContext, link: str) -> None:
    inbound = self.links[link].inbound
    self.journal.set_cursor(link, inbound.epoch, inbound.handled)
    inbound.released = inbound.handled
    self.actions.append(Release(link, inbound.epoch, inbound.handled))


def _wait_for_nothing(self: Journal, action: Reply) -> None:
    self._waiting.appendleft((0, action))


def _links_with_the_way_back(
    self: MessagePipeline, source: str, came_by: str | None, found: frozenset[str]
) -> frozenset[str]:
    links = {*found, *self._tables.table.unknown_links()}
    return frozenset(links.intersection(self._context.links))


def _finish_out_of_order(self: MessagePipeline) -> None:
    for work in [each for each in self._works.values() if each.result is not None]:
        del self._works[work.token]
        assert work.result is not None
        self._finish(work, work.result)


# -- settlement ------------------------------------------------------------------------------------------


def _settled_with_arrival(self: SourceHistory) -> int:
    return max(self.arrived, self.floor)


_settled = SourceHistory.settled


def _settled_without_storing(self: SourceHistory) -> int:
    self._unstored_numbers = SortedNumbers()
    return _settled(self)


def _acknowledge_before_storing(patch: MonkeyPatch) -> None:
    """Promise both that frames need not be sent again, and that messages are settled. With one of the two,
    what a crash has destroyed comes again: from the transport, or from the sender."""
    patch.setattr(NodeContext, "mark_handled", _mark_handled_as_stored)
    patch.setattr(SourceHistory, "settled", _settled_without_storing)


def _send_nothing_again(self: Settlement) -> list[MessageKey]:
    self._changed.update(dict.fromkeys(self.sources))
    return []


def _keep_links(self: SourceHistory) -> None:
    """Forget nothing when the links begin anew."""


# -- tables ----------------------------------------------------------------------------------------------

_add_link = RouteTable.add_link


def _add_link_with_empty_table(self: RouteTable, link: str) -> None:
    _add_link(self, link)
    self.wanted[link].is_complete = True
    self._check_known(link)


def _confirm_at_once(self: Confirmations, besides: str | None = None) -> dict[str, int]:
    return {}


def _is_never_open(self: RouteTable, besides: str) -> bool:
    return False


def _tell_additions_with_removals(
    self: TableExchange, besides: str | None = None, always: bool = False
) -> None:
    """Tell nobody of a route before the next removals; confirm it all the same."""


def _remove_whole_routes(self: RouteTable, added: Any, removed: Any) -> None:
    _change_local(self, added, [each for each in removed for _ in range(self._uses[each.key])])


_change_local = RouteTable.change_local


# -- links -----------------------------------------------------------------------------------------------


def _go_nowhere(self: OutboundLink, number: int) -> None:
    """Send nothing again."""


def _take_before_storing(self: OutboundLink, stored: int) -> Any:
    return _take(self, 10**9)


_take = OutboundLink.take


def _say_nothing_is_had(self: SourceHistory) -> Any:
    return ((1, 10**6),)


# -- conditions ------------------------------------------------------------------------------------------


def weaken_negations(condition: Condition, inside: bool = False) -> Condition:
    """Compare with nothing inside negations, as a normal form does that has no regard to them."""
    match condition:
        case And(items=items):
            return all_of([weaken_negations(item, inside) for item in items])
        case Or(items=items):
            return any_of([weaken_negations(item, inside) for item in items])
        case Not(item=item):
            return negation(weaken_negations(item, True))
        case Has(path=path, test=test):
            steps = [
                Step(step.axis, step.test, tuple(weaken_negations(each, inside) for each in step.conditions))
                for step in path.steps
            ]
            return Has(Path(tuple(steps)), None if inside else test)
    return condition


class WeakenedWorkload(BrokerWorkload):
    """Routes that are not necessary conditions."""

    def _make_routes(self, query: SimQuery) -> tuple[Route, ...]:
        return tuple(
            Route(route.tenant, route.stream, weaken_negations(route.condition))
            for route in super()._make_routes(query)
        )


def _nothing(patch: MonkeyPatch) -> None:
    """The fault is in the workload."""


REQUIRED = (
    Mutant(
        "drops the recognition of duplicates", _patch(MessagePipeline, "_take_message", _take_without_looking)
    ),
    Mutant("acknowledges before it has stored", _acknowledge_before_storing, first=145),
    Mutant("weakens conditions inside not()", _nothing, workload=WeakenedWorkload),
    Mutant("begins a link with an empty table", _patch(RouteTable, "add_link", _add_link_with_empty_table)),
    Mutant("sends messages back", _patch(MessagePipeline, "_links_for", _links_with_the_way_back)),
)
FURTHER = (
    Mutant("answers publishers before it has stored", _patch(Journal, "wait", _wait_for_nothing)),
    Mutant(
        "finishes messages as they are matched",
        _patch(MessagePipeline, "_finish_first", _finish_out_of_order),
    ),
    Mutant("settles what has arrived", _patch(SourceHistory, "settled", _settled_with_arrival)),
    Mutant(
        "sends nothing again after a change of the tree",
        _patch(Settlement, "begin_sending", _send_nothing_again),
    ),
    Mutant("keeps its ways after a change of the tree", _patch(SourceHistory, "forget_links", _keep_links)),
    Mutant("confirms before its neighbours", _patch(Confirmations, "versions", _confirm_at_once)),
    Mutant("takes an incomplete table for all", _patch(RouteTable, "_is_side_open", _is_never_open), 25),
    Mutant(
        "does not tell of routes", _patch(TableExchange, "tell_neighbours", _tell_additions_with_removals)
    ),
    Mutant("removes routes that are still in use", _patch(RouteTable, "change_local", _remove_whole_routes)),
    Mutant("never goes back", _patch(OutboundLink, "go_back", _go_nowhere)),
    Mutant("sends what is not stored", _patch(OutboundLink, "take", _take_before_storing)),
    Mutant("claims to have what it has not", _patch(SourceHistory, "have", _say_nothing_is_had)),
    Mutant(
        "numbers messages as in a former life", _patch(Settlement, "_former_numbers", lambda self, source: 0)
    ),
    Mutant("hears no complaint", _patch(LinkProtocol, "_complain", lambda self, name, inbound: None)),
)
