"""What the network makes of one message. Whatever two transformations ask for is found and written once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sapwood.engine.automaton.relative_paths import ReachedElements
from sapwood.engine.failures import FailureKind, QueryProblem, report_defect
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.document import ContextNode, Document
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import DOCUMENT as DOCUMENT_NODE
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.lang.fwr.model import DOCUMENT
from sapwood.lang.pattern import TEXT, Path, Step
from sapwood.transform import nested_loops
from sapwood.transform.fallback_transformation import groups_of
from sapwood.transform.result_groups import Group, TooManyGroups
from sapwood.transform.result_writer import ResultTemplate, ResultWriter
from sapwood.transform.source_fragments import SourceFragments

if TYPE_CHECKING:
    from sapwood.transform.shared_plan import Filling, SharedPlan, SharedTemplate

Nodes = tuple[int, ...]
T = TypeVar("T")


class ResultBodies(list[tuple[int, bytes]]):
    """What entries make of a message."""

    def __init__(self, made: Iterable[tuple[int, bytes]], problems: list[tuple[int, QueryProblem]]) -> None:
        super().__init__(made)
        self.problems = problems
        """entries that should have made something, and why they have not"""


class PlanExecution:
    """The transformations of one message."""

    def __init__(self, network: SharedPlan, index: Index, message: Message, found: IndexMatches) -> None:
        assert found.evaluator is not None
        self._network = network
        self._index = index
        self._message = message
        self._found = found
        self._evaluator: PatternEvaluator = found.evaluator
        self._document: Document = found.evaluator.document
        self._fragments = SourceFragments(self._document)
        self._writer = ResultWriter(self._document, self._fragments)
        self._bindings: list[tuple[int, Nodes]] | None = None
        self._hopped: set[int] = set()  # elements bound by way of others
        self._reached: ReachedElements | None = None
        document = self._document
        self._sliced = found.joined and document.verbatim and not document.declarations
        self._document_lists: dict[tuple[Path, ...], list[ContextNode]] = {}
        self._pieces: dict[tuple[int, int], bytes] = {}
        self._bodies: dict[tuple[int, Nodes], bytes | QueryProblem] = {}
        self.problems: list[tuple[int, QueryProblem]] = []
        """entries that should have made something, and why they have not"""

    def bodies(self) -> list[tuple[int, bytes]]:
        """The entries that make something of the message, and what."""
        made: list[tuple[int, bytes]] = []
        bindings, known = self._network.bindings, self._bodies
        for slot, nodes in self._bound():
            for number, template in bindings[slot].entries.items():
                key = template, nodes
                body = known.get(key)
                if body is None:
                    body = known[key] = self._body_of(number, template, nodes)
                if isinstance(body, QueryProblem):
                    self.problems.append((number, body))
                else:
                    made.append((number, body))
        made += self._bodies_alone()
        return made

    def _bodies_alone(self) -> Iterator[tuple[int, bytes]]:
        alone = self._alone()
        for number, groups in (*self._walked(alone), *self._refined(alone)):
            if isinstance(groups, QueryProblem):
                self.problems.append((number, groups))
            elif sum(map(len, groups)) > self._index.limits.result:
                self.problems.append((number, self._too_large()))
            elif groups:
                yield number, self._template_alone(number).body(groups)

    def _body_of(self, number: int, template: int, nodes: Nodes) -> bytes | QueryProblem:
        try:
            return self._body(template, nodes)
        except Exception as error:
            return report_defect(error, self._text(number))

    def _body(self, template: int, nodes: Nodes) -> bytes | QueryProblem:
        shared = self._network.templates[template]
        room = self._index.limits.result
        if len(nodes) == 1:  # the frequent case
            piece = self._group(shared, nodes[0])
            return shared.template.alone(piece) if len(piece) <= room else self._too_large()
        pieces: list[bytes] = []
        for node in nodes:
            piece = self._piece(template, node)
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                return self._too_large()
        return shared.template.body(pieces)

    def _too_large(self) -> QueryProblem:
        return QueryProblem(FailureKind.FAILED, f"it makes more than {self._index.limits.result:,} bytes")

    def _text(self, number: int) -> str:
        return self._network.entry(number).text[:200]

    def groups(self) -> Iterator[tuple[int, list[Group]]]:
        """The entries that patterns can say and that make something of the message, and their groups."""
        for slot, nodes in self._bound():
            for number, template in self._network.bindings[slot].entries.items():
                shared = self._network.templates[template]
                yield number, [Group((node,), self._lists(shared, node)) for node in nodes]
        for number in self._alone():
            if self._network.entry(number).template >= 0:
                groups = nested_loops.groups(
                    self._network.transformation(number), self._evaluator, self._document
                )
                if groups:
                    yield number, groups

    # -- bound by the join -----------------------------------------------------------------------------

    def _bound(self) -> list[tuple[int, Nodes]]:
        """The slots that are bound, and to which elements, in document order."""
        if self._bindings is None:
            self._bindings = list(self._find_bound())
        return self._bindings

    def _find_bound(self) -> Iterator[tuple[int, Nodes]]:
        if not self._found.joined:
            for slot in self._found.slots.tolist():
                if slot in self._network.bindings:
                    path, _ = self._network.binding(slot)
                    yield slot, tuple(n for n in self._evaluator.select(path) if isinstance(n, int))
            return
        bindings = self._network.bindings
        # others may bind elements, too
        found = [pair for pair in _grouped(self._found, len(self._document)) if pair[0] in bindings]
        onward: ReachedElements | None = None
        if self._network.hops:
            anchors = {node for slot, nodes in found if bindings[slot].hop is not None for node in nodes}
            onward = self._index.reached(self._found, sorted(anchors))
        for slot, nodes in found:
            binding = bindings[slot]
            if binding.hop is not None and onward is not None:
                nodes = tuple(sorted({end for node in nodes for end in onward.of(binding.hop, node)}))
                self._hopped.update(nodes)
            if not binding.exact:
                _, condition = self._network.binding(slot)
                nodes = tuple(node for node in nodes if self._evaluator.holds(condition, node))
            if nodes:
                yield slot, nodes

    def _piece(self, template: int, node: int) -> bytes:
        key = template, node
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = self._group(self._network.templates[template], node)
        return piece

    def _group(self, shared: SharedTemplate, node: int) -> bytes:
        if shared.copies is not None and self._sliced:
            return self._copied(shared.copies, node)
        return self._writer.group(shared.template, self._lists(shared, node))

    def _copied(self, parts: tuple[bytes | int, ...], node: int) -> bytes:
        """What the writer would make of constants and elements that are copied as they stand."""
        pieces: list[bytes] = []
        starts, stops = self._document.spans
        source, reached = self._document.source, self._all_reached
        for part in parts:
            if isinstance(part, bytes):
                pieces.append(part)
            else:
                elements = reached.of(part, node) if part >= 0 else (node,)
                pieces += [source[starts[element] : stops[element]] for element in elements]
        return b"".join(pieces)

    def _lists(self, shared: SharedTemplate, node: int) -> tuple[list[ContextNode], ...]:
        return tuple([self._filled(filling, node) for filling in shared.fillings])

    def _filled(self, filling: Filling, node: int) -> list[ContextNode]:
        if filling.origin == DOCUMENT:
            return self._of_document(filling.paths)
        if filling.group is None or not self._found.joined:
            return nested_loops.select_nodes(filling.paths, node, self._evaluator, self._document)
        elements = [node] if filling.group < 0 else self._all_reached.of(filling.group, node)
        return list(elements) if filling.leaf is None else self._leaves(elements, filling.leaf)

    def _of_document(self, paths: tuple[Path, ...]) -> list[ContextNode]:
        known = self._document_lists.get(paths)
        if known is None:
            known = nested_loops.select_nodes(paths, DOCUMENT_NODE, self._evaluator, self._document)
            self._document_lists[paths] = known
        return known

    @property
    def _all_reached(self) -> ReachedElements:
        if self._reached is None:
            starts = np.unique(self._found.bound_to).tolist()
            if self._hopped:
                starts = sorted({*starts, *self._hopped})
            self._reached = self._index.reached(self._found, starts)
        return self._reached

    def _leaves(self, elements: list[int], leaf: Step) -> list[ContextNode]:
        document = self._document
        if leaf.test == TEXT:
            return self._evaluator.follow(list(elements), leaf)
        return [node for element in elements for node in document.attributes_named(element, leaf.test)]

    # -- evaluated on their own ------------------------------------------------------------------------

    def _alone(self) -> list[int]:
        alone = self._network.alone
        if not alone:
            return []
        slots = self._found.slots[self._network.claimed(self._found.slots)]
        return [alone[slot] for slot in slots.tolist() if slot in alone]

    def _walked(self, alone: list[int]) -> Iterator[tuple[int, list[bytes] | QueryProblem]]:
        """The groups, written, of the entries that nested loops evaluate."""
        for number in alone:
            if self._network.entry(number).template >= 0:
                yield number, self._on_its_own(number, partial(self._walk, number))

    def _walk(self, number: int) -> list[bytes]:
        transformation, template = self._network.transformation(number), self._template_alone(number)
        groups = nested_loops.groups(transformation, self._evaluator, self._document)
        return [self._writer.group(template, group.lists) for group in groups]

    def _refined(self, alone: list[int]) -> Iterator[tuple[int, list[bytes] | QueryProblem]]:
        """The groups, written, of the entries that lxml evaluates, on one tree for all."""
        entry = self._network.entry
        numbers = {entry(number).slot: number for number in alone if entry(number).template < 0}
        if not numbers:
            return
        requests = {slot: self._network.refined(number).request for slot, number in numbers.items()}
        for slot, found in self._index.refiner.evaluate(self._message, requests).items():
            number = numbers[slot]
            if isinstance(found, QueryProblem):
                yield number, found
            else:
                yield number, self._on_its_own(number, partial(self._write, number, found))

    def _write(self, number: int, found: list[list[object]]) -> list[bytes]:
        template = self._template_alone(number)
        return [self._writer.group(template, lists) for lists in groups_of(found)]

    def _on_its_own(self, number: int, make: Callable[[], T]) -> T | QueryProblem:
        """What an entry makes, and the time that it takes; if it fails, no other suffers."""
        started = perf_counter_ns()
        try:
            return make()
        except TooManyGroups as error:
            return QueryProblem(FailureKind.FAILED, str(error))
        except Exception as error:
            return report_defect(error, self._text(number))
        finally:
            self._index.costs[self._network.entry(number).slot] += perf_counter_ns() - started

    def _template_alone(self, number: int) -> ResultTemplate:
        entry = self._network.entry(number)
        if entry.template >= 0:
            return self._network.templates[entry.template].template
        return ResultTemplate.of(self._network.transformation(number))


def _grouped(found: IndexMatches, elements: int) -> Iterator[tuple[int, Nodes]]:
    """The pairs of slots and elements, slot by slot, each once."""
    if not len(found.bound_slots):
        return
    keys = np.unique(found.bound_slots.astype(np.int64) * elements + found.bound_to)
    slots = keys // elements
    nodes = (keys - slots * elements).tolist()
    starts = np.flatnonzero(np.concatenate(([True], slots[1:] != slots[:-1])))
    ends = [*starts[1:].tolist(), len(nodes)]
    for slot, start, end in zip(slots[starts].tolist(), starts.tolist(), ends, strict=True):
        yield slot, tuple(nodes[start:end])
