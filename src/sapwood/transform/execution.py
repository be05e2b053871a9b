"""The execution of the shared plan on one message. Nodes and results that queries share are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeVar

from sapwood.engine.automaton.relative_paths import ReachedElements
from sapwood.engine.failures import FailureKind, QueryProblem, report_defect
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.document import ContextNode, Document
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import DOCUMENT as DOCUMENT_NODE
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.engine.registration import Owner
from sapwood.lang.fwr.model import DOCUMENT
from sapwood.lang.pattern import TEXT, Path, Step
from sapwood.transform import nested_loops
from sapwood.transform.fallback_transformation import groups_of
from sapwood.transform.result_groups import Group, TooManyGroups
from sapwood.transform.result_writer import ResultTemplate, ResultWriter
from sapwood.transform.source_fragments import SourceFragments

if TYPE_CHECKING:
    from sapwood.transform.shared_plan import HoleSource, SharedPlan, SharedTemplate

Nodes = tuple[int, ...]
T = TypeVar("T")


class ResultBodies(list[tuple[int, bytes]]):
    """The results that transformations make of a message, by entry."""

    def __init__(self, made: Iterable[tuple[int, bytes]], problems: list[tuple[int, QueryProblem]]) -> None:
        super().__init__(made)
        self.problems = problems
        """entries that failed, and why"""


class PlanExecution:
    """One run of the shared plan, on one message."""

    def __init__(self, plan: SharedPlan, index: Index, message: Message, found: IndexMatches) -> None:
        self._plan = plan
        self._index = index
        self._message = message
        self._found = found
        self._evaluator: PatternEvaluator = found.evaluator
        self._document: Document = found.evaluator.document
        self._fragments = SourceFragments(self._document)
        self._writer = ResultWriter(self._document, self._fragments)
        self._bindings: list[tuple[int, Nodes]] | None = None
        self._reached: ReachedElements | None = None
        document = self._document
        self._sliced = found.joined and document.verbatim and not document.declarations
        self._document_lists: dict[tuple[Path, ...], list[ContextNode]] = {}
        self._pieces: dict[tuple[int, int], bytes] = {}
        self._bodies: dict[Nodes, dict[int, bytes | QueryProblem]] = {}  # by bound nodes and template
        self.problems: list[tuple[int, QueryProblem]] = []
        """entries that failed, and why"""

    def bodies(self) -> list[tuple[int, bytes]]:
        """Return the entries with a result, and the results."""
        made: list[tuple[int, bytes]] = []
        bindings = self._plan.bindings
        for slot, nodes in self._bound():
            known = self._bodies.setdefault(nodes, {})
            for number, template in bindings[slot].entries.items():
                body = known.get(template)
                if body is None:
                    body = known[template] = self._body_of(number, template, nodes)
                if isinstance(body, QueryProblem):
                    self.problems.append((number, body))
                else:
                    made.append((number, body))
        made += self._standalone_bodies()
        return made

    def _standalone_bodies(self) -> Iterator[tuple[int, bytes]]:
        alone = self._alone()
        for number, groups in (*self._run_nested_loops(alone), *self._run_fallback(alone)):
            if isinstance(groups, QueryProblem):
                self.problems.append((number, groups))
            elif sum(map(len, groups)) > self._index.limits.result:
                self.problems.append((number, self._too_large()))
            elif groups:
                yield number, self._standalone_template(number).body(groups)

    def _body_of(self, number: int, template: int, nodes: Nodes) -> bytes | QueryProblem:
        try:
            return self._body(template, nodes)
        except Exception as error:
            return report_defect(error, self._text(number))

    def _body(self, template: int, nodes: Nodes) -> bytes | QueryProblem:
        shared = self._plan.templates[template]
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
        return self._plan.entry(number).text[:200]

    def groups(self) -> Iterator[tuple[int, list[Group]]]:
        """Yield the natively evaluated entries with a result, and their groups."""
        for slot, nodes in self._bound():
            for number, template in self._plan.bindings[slot].entries.items():
                shared = self._plan.templates[template]
                yield number, [Group((node,), self._lists(shared, node)) for node in nodes]
        for number in self._alone():
            if self._plan.entry(number).template >= 0:
                groups = nested_loops.groups(
                    self._plan.transformation(number), self._evaluator, self._document
                )
                if groups:
                    yield number, groups

    # -- bound by the twig join ------------------------------------------------------------------------

    def _bound(self) -> list[tuple[int, Nodes]]:
        """Return the slots that are bound, each with its elements in document order."""
        if self._bindings is None:
            self._bindings = list(self._find_bound())
        return self._bindings

    def _find_bound(self) -> Iterator[tuple[int, Nodes]]:
        if not self._found.joined:
            for slot in self._found.slots.tolist():
                if slot in self._plan.bindings:
                    path, _ = self._plan.binding(slot)
                    yield slot, tuple(n for n in self._evaluator.select(path) if isinstance(n, int))
            return
        bindings = self._plan.bindings
        # other owners bind elements, too
        found = [pair for pair in self._found.bound_elements if pair[0] in bindings]
        reached_on: ReachedElements | None = None
        if self._plan.indirect_bindings:
            anchors = {
                node for slot, nodes in found if bindings[slot].relative_path is not None for node in nodes
            }
            reached_on = self._found.reached(sorted(anchors))
        for slot, nodes in found:
            binding = bindings[slot]
            if binding.relative_path is not None and reached_on is not None:
                nodes = tuple(
                    sorted({end for node in nodes for end in reached_on.of(binding.relative_path, node)})
                )
            if not binding.exact:
                _, condition = self._plan.binding(slot)
                nodes = tuple(node for node in nodes if self._evaluator.holds(condition, node))
            if nodes:
                yield slot, nodes

    def _piece(self, template: int, node: int) -> bytes:
        key = template, node
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = self._group(self._plan.templates[template], node)
        return piece

    def _group(self, shared: SharedTemplate, node: int) -> bytes:
        if shared.copies is not None and self._sliced:  # as the writer would make it
            return self._all_reached.copy(shared.copies, node)
        return self._writer.group(shared.template, self._lists(shared, node))

    def _lists(self, shared: SharedTemplate, node: int) -> tuple[list[ContextNode], ...]:
        return tuple([self._fill(source, node) for source in shared.hole_sources])

    def _fill(self, source: HoleSource, node: int) -> list[ContextNode]:
        if source.origin == DOCUMENT:
            return self._of_document(source.paths)
        if source.relative_path is None or not self._found.joined:
            return nested_loops.select_nodes(source.paths, node, self._evaluator, self._document)
        elements = [node] if source.relative_path < 0 else self._all_reached.of(source.relative_path, node)
        return list(elements) if source.leaf is None else self._leaves(elements, source.leaf)

    def _of_document(self, paths: tuple[Path, ...]) -> list[ContextNode]:
        known = self._document_lists.get(paths)
        if known is None:
            known = nested_loops.select_nodes(paths, DOCUMENT_NODE, self._evaluator, self._document)
            self._document_lists[paths] = known
        return known

    @property
    def _all_reached(self) -> ReachedElements:
        if self._reached is None:
            starts = {node for _, nodes in self._bound() for node in nodes}
            self._reached = self._found.reached(sorted(starts))
            assert self._reached is not None  # since something is bound
        return self._reached

    def _leaves(self, elements: list[int], leaf: Step) -> list[ContextNode]:
        document = self._document
        if leaf.test == TEXT:
            return self._evaluator.follow(list(elements), leaf)
        return [node for element in elements for node in document.attributes_named(element, leaf.test)]

    # -- evaluated one by one --------------------------------------------------------------------------

    def _alone(self) -> list[int]:
        alone = self._plan.alone
        if not alone:
            return []
        slots = self._found.slots[self._index.owned_by(Owner.TRANSFORMATION, self._found.slots)]
        return [alone[slot] for slot in slots.tolist() if slot in alone]

    def _run_nested_loops(self, alone: list[int]) -> Iterator[tuple[int, list[bytes] | QueryProblem]]:
        """Yield the written groups of the entries that nested loops evaluate."""
        for number in alone:
            if self._plan.entry(number).template >= 0:
                yield number, self._evaluate_one(number, partial(self._evaluate_loops, number))

    def _evaluate_loops(self, number: int) -> list[bytes]:
        transformation, template = self._plan.transformation(number), self._standalone_template(number)
        groups = nested_loops.groups(transformation, self._evaluator, self._document)
        return [self._writer.group(template, group.lists) for group in groups]

    def _run_fallback(self, alone: list[int]) -> Iterator[tuple[int, list[bytes] | QueryProblem]]:
        """Yield the written groups of the entries that lxml evaluates, on one tree for all."""
        entry = self._plan.entry
        numbers = {entry(number).slot: number for number in alone if entry(number).template < 0}
        if not numbers:
            return
        requests = {slot: self._plan.fallback(number).request for slot, number in numbers.items()}
        for slot, found in self._index.fallback.evaluate(self._message, requests).items():
            number = numbers[slot]
            if isinstance(found, QueryProblem):
                yield number, found
            else:
                yield number, self._evaluate_one(number, partial(self._write, number, found))

    def _write(self, number: int, found: list[list[object]]) -> list[bytes]:
        template = self._standalone_template(number)
        return [self._writer.group(template, lists) for lists in groups_of(found)]

    def _evaluate_one(self, number: int, make: Callable[[], T]) -> T | QueryProblem:
        """Return the result of one entry, or its failure, and count the time that it takes."""
        started = perf_counter_ns()
        try:
            return contain_failure(make, self._text(number))
        finally:
            self._index.costs[self._plan.entry(number).slot] += perf_counter_ns() - started

    def _standalone_template(self, number: int) -> ResultTemplate:
        entry = self._plan.entry(number)
        if entry.template >= 0:
            return self._plan.templates[entry.template].template
        return ResultTemplate.of(self._plan.transformation(number))


def contain_failure(make: Callable[[], T], query: str) -> T | QueryProblem:
    """Return what one query makes, or its failure, so that no other query is affected."""
    try:
        return make()
    except TooManyGroups as error:
        return QueryProblem(FailureKind.FAILED, str(error))
    except Exception as error:
        return report_defect(error, query)
