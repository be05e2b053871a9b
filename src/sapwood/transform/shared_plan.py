"""The shared plan: all transformations as one set of shared operators over the matches of the index.

    index ── bindings ────────► (slot, bound node)    one slot for each distinct binding, with its conditions
          └─ relative paths ──► (path, node) → nodes   one group-by for each distinct return path
    templates               one for each distinct return clause; filled once for each node for all queries

A transformation is a slot and a template. A slot is found by the twig join of the engine: queries that differ
in constants cost one probe of an index, and a message that matches none of them costs none of them anything.
Return paths start at the bound node whichever path bound it, so queries with different bindings share them.
The result of a template for a list of bound nodes is written once for all queries that use it.

Transformations with several variables, unions or positions are found by the index in the same way, and then
evaluated one by one; those that patterns cannot express are evaluated by lxml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sapwood.engine.automaton.item_numbers import store_item
from sapwood.engine.index import Index, IndexMatches
from sapwood.engine.message.message_reader import Message
from sapwood.engine.registration import Needs, Owner
from sapwood.lang.fwr.compiler import compile_filter_of, compile_transformation
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
from sapwood.transform.fallback_transformation import FallbackTransformation
from sapwood.transform.path_analysis import to_navigation, to_symbols
from sapwood.transform.result_groups import Group
from sapwood.transform.result_writer import ResultTemplate

SELF = -1
"""in place of the number of a relative path: the bound node itself"""


@dataclass(frozen=True, slots=True)
class HoleSource:
    """The source of a hole's nodes: those that a relative path reaches, or attributes or text of them."""

    relative_path: int | None
    """its number; None: `paths` are evaluated"""
    leaf: Step | None
    origin: int
    paths: tuple[Path, ...]


@dataclass(slots=True)
class SharedTemplate:
    """A template, filled in the same way for all transformations that use it."""

    template: ResultTemplate
    hole_sources: tuple[HoleSource, ...]
    key: str
    copies: tuple[bytes | int, ...] | None = None
    """the frequent case: constants, and relative paths whose elements are copied"""
    uses: int = 0


@dataclass(slots=True)
class SharedBinding:
    """The binding of a slot of the index, and the transformations that share it."""

    key: str
    text: str
    """the text of one of them, from which the path is compiled on demand"""
    exact: bool
    """False: the elements that the index reports are candidates"""
    relative_path: int | None = None
    """the relative path from these elements to the bound ones, if a step between has conditions"""
    entries: dict[int, int] = field(default_factory=dict)
    """entry → template"""
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
    """True: its slot is a binding; False: it is evaluated one by one"""
    compiled: Transformation | None = None
    fallback: FallbackTransformation | None = None


class SharedPlan:
    """The transformations of one index. Equal ones are one entry with a use count."""

    def __init__(self, index: Index, namespaces: Mapping[str, str]) -> None:
        self._index = index
        index.set_compiler(Owner.TRANSFORMATION, compile_filter_of)
        self._namespaces = namespaces
        self._entries: list[TransformationEntry | None] = []
        self._free_entries: list[int] = []
        self._uses: list[int] = []
        self._number_of: dict[str, int] = {}  # by the transformation's key
        self._slot_of: dict[str, int] = {}  # by the binding's key
        self.bindings: dict[int, SharedBinding] = {}  # by slot
        self.indirect_bindings = 0  # bindings through a relative path
        self.alone: dict[int, int] = {}  # slot → entry that is evaluated one by one
        self.templates: dict[int, SharedTemplate] = {}
        self._template_of: dict[str, int] = {}
        self._next_template = 0

    def __len__(self) -> int:
        return len(self._entries) - len(self._free_entries)

    # -- registration ----------------------------------------------------------------------------------

    def add(self, transformation: Transformation) -> int:
        """Add one use of a transformation, and return the number of its entry."""
        binding_key, template_key = transformation.binding_key, transformation.template_key
        key = f"{template_key} {binding_key}"
        number = self._number_of.get(key)
        if number is not None:
            self._uses[number] += 1
            return number
        entry = TransformationEntry(key, transformation.text)
        if not transformation.exact:
            entry.fallback = FallbackTransformation(transformation)
        number = store_item(entry, self._entries, self._uses, self._free_entries)
        self._number_of[key] = number
        try:
            self._register(transformation, binding_key, template_key, entry, number)
        except BaseException:
            self._forget(entry, number)
            raise
        return number

    def _register(
        self,
        transformation: Transformation,
        binding_key: str,
        template_key: str,
        entry: TransformationEntry,
        number: int,
    ) -> None:
        """Register an entry: give it a slot and a template."""
        bound = transformation.exact and self._bind(transformation, binding_key, entry)
        if transformation.exact:
            entry.template = self._use_template(transformation, template_key, bound)
        if bound:
            self.bindings[entry.slot].entries[number] = entry.template
            return
        query = Query(entry.text, "boolean", transformation.condition)
        entry.slot = self._index.register(query, Owner.TRANSFORMATION, Needs.TEXT | Needs.SOURCE)
        entry.compiled = transformation
        self.alone[entry.slot] = number

    def _forget(self, entry: TransformationEntry, number: int) -> None:
        del self._number_of[entry.key]
        self._entries[number] = None
        self._free_entries.append(number)

    def _bind(self, transformation: Transformation, key: str, entry: TransformationEntry) -> bool:
        """Give an entry a slot that binds its one variable; return False if that is not possible."""
        if not _binds_once(transformation):
            return False
        slot = self._slot_of.get(key)
        if slot is None:
            anchor, rest = _split(transformation.variables[0].paths[0])
            query = Query(entry.text, "boolean", transformation.condition)
            checked = bool(rest and rest[-1].conditions)  # on each element that the rest reaches
            needs = Needs.SOURCE | Needs.TEXT if checked else Needs.SOURCE
            found = self._index.register_binding(query, anchor, Owner.TRANSFORMATION, needs)
            if found is None:
                return False
            slot, exact = found
            if rest and not exact:
                self._index.unregister(slot)
                return False
            number = self._index.register_relative_path(to_symbols(rest)) if rest else None
            self.indirect_bindings += bool(rest)
            self._slot_of[key] = slot
            self.bindings[slot] = SharedBinding(key, entry.text, exact and not checked, number)
        entry.slot, entry.bound = slot, True
        return True

    def remove(self, number: int) -> None:
        """Take back one use of an entry, and free all that only it used."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        entry = self.entry(number)
        self._forget(entry, number)
        if entry.template >= 0:
            self._release_template(entry.template)
        if entry.bound:
            self._unbind(entry, number)
        else:
            del self.alone[entry.slot]
            self._index.unregister(entry.slot)

    def _unbind(self, entry: TransformationEntry, number: int) -> None:
        binding = self.bindings[entry.slot]
        del binding.entries[number]
        if binding.entries:
            if binding.text == entry.text:
                binding.text = self.entry(next(iter(binding.entries))).text
            return
        del self.bindings[entry.slot]
        del self._slot_of[binding.key]
        if binding.relative_path is not None:
            self._index.unregister_relative_path(binding.relative_path)
            self.indirect_bindings -= 1
        self._index.unregister(entry.slot)

    # -- templates -------------------------------------------------------------------------------------

    def _use_template(self, transformation: Transformation, key: str, bound: bool) -> int:
        key = key if bound else f"alone {key}"
        number = self._template_of.get(key)
        if number is None:
            number = self._template_of[key] = self._next_template
            self._next_template += 1
            hole_sources = tuple(self._hole_source(hole) for hole in transformation.holes) if bound else ()
            template = ResultTemplate.of(transformation)
            copies = _copies(template, hole_sources) if bound else None
            self.templates[number] = SharedTemplate(template, hole_sources, key, copies)
            if _needs_text(transformation):
                self._index.require(Needs.TEXT)
        self.templates[number].uses += 1
        return number

    def _release_template(self, number: int) -> None:
        shared = self.templates[number]
        shared.uses -= 1
        if shared.uses:
            return
        for source in shared.hole_sources:
            if source.relative_path is not None and source.relative_path != SELF:
                self._index.unregister_relative_path(source.relative_path)
        if _needs_text(shared.template):
            self._index.release(Needs.TEXT)
        del self.templates[number], self._template_of[shared.key]

    def _hole_source(self, hole: TemplateHole) -> HoleSource:
        number: int | None = None
        leaf: Step | None = None
        found = to_navigation(hole.paths[0]) if len(hole.paths) == 1 and hole.origin != DOCUMENT else None
        if found is not None and (found.leaf is None or found.leaf.axis is not Axis.DESCENDANT):
            leaf = found.leaf
            number = self._index.register_relative_path(to_symbols(found.steps)) if found.steps else SELF
        return HoleSource(number, leaf, hole.origin, hole.paths)

    # -- messages --------------------------------------------------------------------------------------

    def bodies(self, message: Message, found: IndexMatches) -> ResultBodies:
        """Return the results of all entries on a message with these matches."""
        execution = PlanExecution(self, self._index, message, found)
        return ResultBodies(execution.bodies(), execution.problems)

    def groups(self, message: Message, found: IndexMatches) -> Iterator[tuple[int, list[Group]]]:
        """Yield the natively evaluated entries that have a result on a message, and their groups."""
        return PlanExecution(self, self._index, message, found).groups()

    def resume(self, number: int) -> None:
        """Have lxml evaluate a suspended entry again."""
        self._index.fallback.resume(self.entry(number).slot)

    def is_suspended(self, number: int) -> bool:
        """Return whether an entry exceeded its budget too often, and is not evaluated until `resume`."""
        return self._index.fallback.is_suspended(self.entry(number).slot)

    def entry(self, number: int) -> TransformationEntry:
        entry = self._entries[number]
        assert entry is not None
        return entry

    def uses_of_path(self, number: int) -> int:
        """Return the number of holes that a relative path fills."""
        return self._index.relative_path_uses(number)

    def transformation(self, number: int) -> Transformation:
        entry = self.entry(number)
        if entry.compiled is None:
            entry.compiled = compile_transformation(entry.text, self._namespaces)
        return entry.compiled

    def binding(self, slot: int) -> tuple[Path, Condition]:
        """Return the path of a slot that is bound, and the condition on its last step."""
        binding = self.bindings[slot]
        if binding.path is None or binding.condition is None:
            path = compile_transformation(binding.text, self._namespaces).variables[0].paths[0]
            binding.path, binding.condition = path, all_of(path.steps[-1].conditions)
        return binding.path, binding.condition

    def fallback(self, number: int) -> FallbackTransformation:
        entry = self.entry(number)
        if entry.fallback is None:
            entry.fallback = FallbackTransformation(self.transformation(number))
        return entry.fallback

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is compiled again on demand."""
        entries = [
            entry and TransformationEntry(entry.key, entry.text, entry.slot, entry.template, entry.bound)
            for entry in self._entries
        ]
        bindings = {
            slot: SharedBinding(
                binding.key, binding.text, binding.exact, binding.relative_path, binding.entries
            )
            for slot, binding in self.bindings.items()
        }
        return self.__dict__ | {"_entries": entries, "bindings": bindings}


def _binds_once(transformation: Transformation) -> bool:
    """Return whether the query has one variable, bound by one path, and no other condition."""
    variables = transformation.variables
    return len(variables) == 1 and len(variables[0].paths) == 1 and not transformation.joints


def _split(path: Path) -> tuple[Path, tuple[Step, ...]]:
    """Split a path into the part that the index binds and the steps that are left.

    If one step before the last has conditions, it is bound, provided that the rest exists; from there on the
    path is plain, and at most the last conditions are checked for each element that it reaches.
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


def _copies(template: ResultTemplate, hole_sources: tuple[HoleSource, ...]) -> tuple[bytes | int, ...] | None:
    """Return the template with relative paths for holes, if all holes are filled with copies of elements."""
    parts: list[bytes | int] = []
    sources = iter(hole_sources)
    for part in template.parts:
        if isinstance(part, bytes):
            parts.append(part)
            continue
        source = next(sources)
        plain = part.kind == "nodes" and part.standing == "content" and not part.default_namespace
        if not plain or source.relative_path is None or source.leaf is not None:
            return None
        parts.append(source.relative_path)
    return tuple(parts)


def _needs_text(made: Transformation | ResultTemplate) -> bool:
    """Return whether a template is filled with string-values or text nodes, not only copies of elements."""
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
