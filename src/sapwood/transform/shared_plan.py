"""All transformations as one network of shared operators over the matcher's findings.

    matcher ── bindings ──► (slot, bound node)      one slot for each distinct binding, conditions included
            └─ groups ────► (path, node) → nodes     one group-by for each distinct return path
    templates               one for each distinct return clause; filled once for each node, whoever asks

A transformation is a slot and a template. A slot is found by the shared join of the engine: queries that
differ in constants cost one probe of an index, and a message that meets none of them costs none of them
anything. Return paths start at the bound node whatever bound it, so queries with different bindings share
them. What comes of a template and a list of bound nodes is written once for all queries that ask for it.

Transformations with several variables, unions or positions are found by the matcher just so, and then
evaluated on their own; those that patterns cannot say are left to lxml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.slot_ownership import OwnedSlots
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.lang.fwr.compiler import compile_transformation
from sapwood.lang.fwr.model import DOCUMENT, TemplateHole, Transformation
from sapwood.lang.pattern import (
    TEXT,
    Axis,
    Condition,
    Has,
    Path,
    Step,
    all_of,
    canonical_predicates,
    plain_step,
)
from sapwood.lang.query import Query
from sapwood.transform.execution import PlanExecution, ResultBodies
from sapwood.transform.fallback_transformation import RefinedTransformation
from sapwood.transform.path_analysis import to_navigation, to_symbols
from sapwood.transform.result_groups import Group
from sapwood.transform.result_writer import ResultTemplate

SELF = -1
"""in place of a group's number: the bound node itself"""


@dataclass(frozen=True, slots=True)
class Filling:
    """How a hole gets its nodes: those of a group, and of them perhaps their attributes or text."""

    group: int | None
    """None: by evaluating `paths`"""
    leaf: Step | None
    origin: int
    paths: tuple[Path, ...]


@dataclass(slots=True)
class SharedTemplate:
    """A template, filled in the same way for all transformations that use it."""

    template: ResultTemplate
    fillings: tuple[Filling, ...]
    key: str
    copies: tuple[bytes | int, ...] | None = None
    """the frequent case: constants, and groups whose elements are copied"""
    uses: int = 0


@dataclass(slots=True)
class SharedBinding:
    """What a slot of the index binds, and the transformations that are bound by it."""

    key: str
    text: str
    """of one of them, from which to compile the path when it is needed"""
    exact: bool
    """whether the elements that the index tells are all bound, or candidates"""
    hop: int | None = None
    """a group that leads from these elements to those that are bound, if conditions stand on the way"""
    entries: dict[int, int] = field(default_factory=dict)
    """with their templates"""
    path: Path | None = None
    condition: Condition | None = None


@dataclass(slots=True)
class TransformationEntry:
    """A distinct transformation."""

    key: str
    text: str
    slot: int = -1
    template: int = -1
    """-1 if lxml evaluates it"""
    bound: bool = False
    """whether its slot is a Binding; if not, it is evaluated on its own"""
    compiled: Transformation | None = None
    refined: RefinedTransformation | None = None


class SharedPlan:
    """The transformations of one index. Equal ones are one entry, counted by how many use it."""

    def __init__(self, index: Index, namespaces: Mapping[str, str]) -> None:
        self._index = index
        self._namespaces = namespaces
        self._entries: list[TransformationEntry | None] = []
        self._unused: list[int] = []
        self._uses: list[int] = []
        self._number_of: dict[str, int] = {}  # by the transformation's key
        self._slot_of: dict[str, int] = {}  # by the binding's key
        self.bindings: dict[int, SharedBinding] = {}  # by slot
        self.hops = 0  # bindings by way of another element
        self.alone: dict[int, int] = {}  # slot → the entry that is evaluated on its own
        self._claims = OwnedSlots()
        self.templates: dict[int, SharedTemplate] = {}
        self._template_of: dict[str, int] = {}
        self._next_template = 0

    def __len__(self) -> int:
        return len(self._entries) - len(self._unused)

    # -- the population --------------------------------------------------------------------------------

    def add(self, transformation: Transformation) -> int:
        """Adds one use of a transformation: the number of its entry."""
        binding_key, template_key = transformation.binding_key, transformation.template_key
        key = f"{template_key} {binding_key}"
        number = self._number_of.get(key)
        if number is not None:
            self._uses[number] += 1
            return number
        entry = TransformationEntry(key, transformation.text)
        if not transformation.exact:
            entry.refined = RefinedTransformation(transformation)
        number = self._store(entry)
        try:
            self._file(transformation, binding_key, template_key, entry, number)
        except BaseException:
            self._forget(entry, number)
            raise
        self._claims.add(entry.slot)
        self._index.source_needed += 1
        return number

    def _file(
        self,
        transformation: Transformation,
        binding_key: str,
        template_key: str,
        entry: TransformationEntry,
        number: int,
    ) -> None:
        """Gives an entry its slot and its template."""
        bound = transformation.exact and self._bind(transformation, binding_key, entry)
        if transformation.exact:
            entry.template = self._use_template(transformation, template_key, bound)
        if bound:
            self.bindings[entry.slot].entries[number] = entry.template
            return
        entry.slot = self._index.add(Query(entry.text, "boolean", transformation.condition))
        entry.compiled = transformation
        self.alone[entry.slot] = number
        self._index.text_needed += 1

    def _forget(self, entry: TransformationEntry, number: int) -> None:
        del self._number_of[entry.key]
        self._entries[number] = None
        self._unused.append(number)

    def _store(self, entry: TransformationEntry) -> int:
        if self._unused:
            number = self._unused.pop()
            self._entries[number], self._uses[number] = entry, 1
        else:
            number = len(self._entries)
            self._entries.append(entry)
            self._uses.append(1)
        self._number_of[entry.key] = number
        return number

    def _bind(self, transformation: Transformation, key: str, entry: TransformationEntry) -> bool:
        """Gives the entry a slot that binds its one variable, if that can be."""
        if not _binds_once(transformation):
            return False
        slot = self._slot_of.get(key)
        if slot is None:
            anchor, rest = _split(transformation.variables[0].paths[0])
            found = self._index.bind(Query(entry.text, "boolean", transformation.condition), anchor)
            if found is None:
                return False
            slot, exact = found
            if rest and not exact:
                self._index.remove(slot)
                return False
            hop = self._index.group(to_symbols(rest)) if rest else None
            self.hops += bool(rest)
            exact = exact and not (rest and rest[-1].conditions)
            self._slot_of[key] = slot
            self.bindings[slot] = SharedBinding(key, entry.text, exact, hop)
            self._index.text_needed += not exact
        entry.slot, entry.bound = slot, True
        return True

    def remove(self, number: int) -> None:
        """Takes back one use of an entry, and frees all that only it used."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        entry = self.entry(number)
        self._forget(entry, number)
        self._index.source_needed -= 1
        if entry.template >= 0:
            self._release_template(entry.template)
        if entry.bound:
            self._unbind(entry, number)
        else:
            del self.alone[entry.slot]
            self._index.text_needed -= 1
            self._discard(entry.slot)

    def _unbind(self, entry: TransformationEntry, number: int) -> None:
        binding = self.bindings[entry.slot]
        del binding.entries[number]
        if binding.entries:
            if binding.text == entry.text:
                binding.text = self.entry(next(iter(binding.entries))).text
            return
        del self.bindings[entry.slot]
        del self._slot_of[binding.key]
        self._index.text_needed -= not binding.exact
        if binding.hop is not None:
            self._index.ungroup(binding.hop)
            self.hops -= 1
        self._discard(entry.slot)

    def _discard(self, slot: int) -> None:
        self._claims.remove(slot)
        self._index.remove(slot)

    # -- templates -------------------------------------------------------------------------------------

    def _use_template(self, transformation: Transformation, key: str, bound: bool) -> int:
        key = key if bound else f"alone {key}"
        number = self._template_of.get(key)
        if number is None:
            number = self._template_of[key] = self._next_template
            self._next_template += 1
            fillings = tuple(self._filling(hole) for hole in transformation.holes) if bound else ()
            template = ResultTemplate.of(transformation)
            copies = _copies(template, fillings) if bound else None
            self.templates[number] = SharedTemplate(template, fillings, key, copies)
            self._index.text_needed += _needs_text(transformation)
        self.templates[number].uses += 1
        return number

    def _release_template(self, number: int) -> None:
        shared = self.templates[number]
        shared.uses -= 1
        if shared.uses:
            return
        for filling in shared.fillings:
            if filling.group is not None and filling.group != SELF:
                self._index.ungroup(filling.group)
        self._index.text_needed -= _needs_text(shared.template)
        del self.templates[number], self._template_of[shared.key]

    def _filling(self, hole: TemplateHole) -> Filling:
        group: int | None = None
        leaf: Step | None = None
        found = to_navigation(hole.paths[0]) if len(hole.paths) == 1 and hole.origin != DOCUMENT else None
        if found is not None and (found.leaf is None or found.leaf.axis is not Axis.DESCENDANT):
            leaf = found.leaf
            group = self._index.group(to_symbols(found.steps)) if found.steps else SELF
        return Filling(group, leaf, hole.origin, hole.paths)

    # -- messages --------------------------------------------------------------------------------------

    def claimed(self, slots: Ints) -> NDArray[np.bool_]:
        """Which of the slots are transformations'."""
        return self._claims.among(slots)

    def bodies(self, message: Message, found: IndexMatches) -> ResultBodies:
        """The entries that make something of a message in which this was found, and what."""
        run = PlanExecution(self, self._index, message, found)
        return ResultBodies(run.bodies(), run.problems)

    def groups(self, message: Message, found: IndexMatches) -> Iterator[tuple[int, list[Group]]]:
        """The entries that patterns can say and that make something of a message, and their groups."""
        return PlanExecution(self, self._index, message, found).groups()

    def resume(self, number: int) -> None:
        """Lets lxml evaluate an entry again, if it was suspended."""
        self._index.refiner.resume(self.entry(number).slot)

    def is_suspended(self, number: int) -> bool:
        """Whether an entry went over its budget too often, and is not evaluated until it is resumed."""
        return self._index.refiner.is_suspended(self.entry(number).slot)

    def entry(self, number: int) -> TransformationEntry:
        entry = self._entries[number]
        assert entry is not None
        return entry

    def uses_of_group(self, group: int) -> int:
        """How many holes of templates a group fills."""
        return self._index.groups.uses(group)

    def transformation(self, number: int) -> Transformation:
        entry = self.entry(number)
        if entry.compiled is None:
            entry.compiled = compile_transformation(entry.text, self._namespaces)
        return entry.compiled

    def binding(self, slot: int) -> tuple[Path, Condition]:
        """The path of a slot that is bound, and the condition on its last step."""
        binding = self.bindings[slot]
        if binding.path is None or binding.condition is None:
            path = compile_transformation(binding.text, self._namespaces).variables[0].paths[0]
            binding.path, binding.condition = path, all_of(path.steps[-1].conditions)
        return binding.path, binding.condition

    def refined(self, number: int) -> RefinedTransformation:
        entry = self.entry(number)
        if entry.refined is None:
            entry.refined = RefinedTransformation(self.transformation(number))
        return entry.refined

    def __getstate__(self) -> dict[str, object]:
        """Without what is compiled again when it is needed."""
        entries = [
            entry and TransformationEntry(entry.key, entry.text, entry.slot, entry.template, entry.bound)
            for entry in self._entries
        ]
        bindings = {
            slot: SharedBinding(binding.key, binding.text, binding.exact, binding.hop, binding.entries)
            for slot, binding in self.bindings.items()
        }
        return self.__dict__ | {"_entries": entries, "bindings": bindings}


def _binds_once(transformation: Transformation) -> bool:
    """Whether one path binds one variable, and no more is to be said."""
    variables = transformation.variables
    return len(variables) == 1 and len(variables[0].paths) == 1 and not transformation.joints


def _split(path: Path) -> tuple[Path, tuple[Step, ...]]:
    """The path as far as an index may bind it, and the steps that are left.

    If one step before the last has conditions, it is bound, provided that the rest exists; from there it is
    a plain path on, and at most the last conditions have to be decided for each element it reaches.
    """
    steps = path.steps
    conditioned = [i for i, step in enumerate(steps[:-1]) if step.conditions]
    if len(conditioned) != 1 or to_navigation(Path(_bare(steps))) is None:
        return path, ()
    at = conditioned[0]
    rest = steps[at + 1 :]
    leads_on = Has(Path(rest))
    anchor = Step(steps[at].axis, steps[at].test, canonical_predicates((*steps[at].conditions, leads_on)))
    return Path((*steps[:at], anchor)), rest


def _bare(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(plain_step(step.axis, step.test) for step in steps)


def _copies(template: ResultTemplate, fillings: tuple[Filling, ...]) -> tuple[bytes | int, ...] | None:
    """The template with groups for holes, if each of them is filled with copies of a group's elements."""
    parts: list[bytes | int] = []
    filled = iter(fillings)
    for part in template.parts:
        if isinstance(part, bytes):
            parts.append(part)
            continue
        filling = next(filled)
        plain = part.kind == "nodes" and part.standing == "content" and not part.default_namespace
        if not plain or filling.group is None or filling.leaf is not None:
            return None
        parts.append(filling.group)
    return tuple(parts)


def _needs_text(made: Transformation | ResultTemplate) -> bool:
    """Whether a template is filled with string-values or text nodes, rather than copies of elements."""
    parts = made.template if isinstance(made, Transformation) else made.parts
    return any(
        isinstance(part, TemplateHole)
        and (
            part.kind == "string"
            or part.standing == "attribute value"
            or any(step.test == TEXT or step.conditions for path in part.paths for step in path.steps)
        )
        for part in parts
    )
