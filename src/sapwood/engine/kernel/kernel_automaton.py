"""The automaton in C, behind the same protocol as the one in Python.

C reads and matches a message in one pass, without a document. A `Document` is read in a second pass, and only
when somebody asks for one: residual checks, selected nodes, transformations and joins. Relative paths are
followed on that document, by an automaton of their own in C.

A message that C refuses is read again in Python, for the reason and its position. One with a document type
is checked in Python for what it expands to, rewritten without, and then matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Self, cast

import numpy as np

from sapwood.engine.automaton.dataguide import GuideNode
from sapwood.engine.automaton.predicate_index import NO_INTS, Ints
from sapwood.engine.automaton.protocol import MatchedAhead
from sapwood.engine.automaton.query_paths import Leaf, Twig
from sapwood.engine.automaton.registered_parts import FlatQueries, RegisteredParts
from sapwood.engine.automaton.relative_paths import ListedReach, ReachedElements, RelativePaths
from sapwood.engine.fallback.lxml_process import without_doctype
from sapwood.engine.kernel import _kernel
from sapwood.engine.kernel.kernel_reader import read_nodes
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.message.document import Document
from sapwood.engine.message.encoding import utf8
from sapwood.engine.message.message_reader import (
    Message,
    check_size,
    read_structure,
    to_utf8,
)

_CELL = 20
"""Bytes of a cell of `Tuning.cache`."""

_SHARE = 4
"""The part of the cache that relative paths may take."""

_HAS_DOCTYPE, _UNKNOWN_ENCODING = -4, -5
"""Statuses of readers, as in `reader.h`."""


class _UntestedNode:
    """A node for all tag paths, where nothing is looked for: see `ReaderNode`."""

    attributes = text = value = None

    def __getitem__(self, name: str) -> Self:
        return self


_UNTESTED = cast(GuideNode, _UntestedNode())
"""In place of guide nodes, which a document has and nobody asks for."""


class KernelAutomaton:
    """The parts of all queries, and the structures in C that find them: see `QueryAutomaton`."""

    def __init__(self, limits: Limits, tuning: Tuning) -> None:
        self._limits = limits
        self._tuning = tuning
        self._compiled = self._compile()
        self._relative_paths = RelativePaths()  # their numbers and uses; C follows them
        self._followed = _kernel.RelativePaths(tuning.cache // _SHARE * _CELL)

    def _compile(self) -> _kernel.Automaton:
        limits, tuning = self._limits, self._tuning
        budget = (tuning.cache - tuning.cache // _SHARE) * _CELL
        return _kernel.Automaton(
            budget, limits.depth, limits.attributes, limits.name_length, tuning.query_classes
        )

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the structures in C."""
        return self._compiled.sizes()

    @property
    def reads_text(self) -> bool:
        return self._compiled.reads_text

    # -- registration ----------------------------------------------------------------------------------

    def register(self, slot: int, parts: tuple[Leaf | Twig, ...], binds: bool = False) -> None:
        self._compiled.register(slot, parts, binds)

    def register_path(self, slot: int, path: tuple[str, ...]) -> int:
        found = self._compiled.register_path(slot, path)
        assert found is not None
        return found

    def register_text(self, slot: int, text: str) -> int | None:
        return self._compiled.register_path(slot, text)

    def unregister(self, slot: int) -> None:
        self._compiled.unregister(slot)

    def set_weight(self, slot: int, weight: int) -> None:
        self._compiled.set_weight(slot, weight)

    def count(self, slots: Ints) -> int:
        return self._compiled.count(slots.tobytes())

    def add_relative_path(self, path: tuple[str, ...]) -> int:
        number, leaf = self._relative_paths.add(path)
        if leaf is not None:
            self._followed.add(number, leaf.path)
        return number

    def remove_relative_path(self, number: int) -> None:
        if self._relative_paths.remove(number) is not None:
            self._followed.remove(number)

    def relative_path_uses(self, number: int) -> int:
        return self._relative_paths.uses(number)

    def clear_cache(self) -> None:
        self._compiled.clear()
        self._followed.clear()

    # -- serialization ---------------------------------------------------------------------------------

    def dump(self) -> RegisteredParts:
        code, strings, numbers = self._compiled.dump()
        queries = FlatQueries(np.frombuffer(code, np.int32), strings, np.frombuffer(numbers, np.float64))
        return RegisteredParts(queries, self._relative_paths)

    def load(self, registered: RegisteredParts) -> None:
        code, strings, numbers = registered.queries
        self._compiled.load(code.astype(np.int32).tobytes(), strings, numbers.astype(np.float64).tobytes())
        self._relative_paths = registered.relative_paths
        for number, leaf in self._relative_paths.leaves():
            self._followed.add(number, leaf.path)

    # -- matching --------------------------------------------------------------------------------------

    def match_ahead(self, messages: Sequence[Message]) -> Sequence[_kernel.Result | int]:
        most = self._limits.bytes
        data = tuple([message.data if len(message.data) <= most else b"" for message in messages])
        encodings = tuple([message.encoding for message in messages])
        return self._compiled.match_many(data, encodings, self._tuning.tokenizer)

    def match_at_once(self, messages: Sequence[Message]) -> Sequence[ResultSlots] | None:
        found: list[ResultSlots] = []
        for result in self.match_ahead(messages):
            if isinstance(result, int) or not result.joined:
                return None
            found.append(ResultSlots(result))
        return found

    def is_current(self, ahead: MatchedAhead | None) -> bool:
        return not isinstance(ahead, _kernel.Result) or ahead.version == self._compiled.version

    def find(
        self,
        message: Message,
        with_text: bool = False,
        with_source: bool = False,
        ahead: MatchedAhead | None = None,
    ) -> KernelMatches:
        check_size(message, self._limits)
        if isinstance(ahead, _kernel.Result) and self.is_current(ahead):
            result: _kernel.Result | int = ahead
        else:
            result = self._compiled.match(message.data, message.encoding, self._tuning.tokenizer)
        if isinstance(result, int):
            result = self._match_unusual(message, result)
        return KernelMatches(self, message, result, with_text, with_source)

    def _match_unusual(self, message: Message, status: int) -> _kernel.Result:
        """Match a message that C does not read as it is, or raise the reason why it cannot be read."""
        if status == _UNKNOWN_ENCODING:
            message = to_utf8(message)
            result = self._compiled.match(message.data, message.encoding, False)
            if not isinstance(result, int):
                return result
            status = result
        if status != _HAS_DOCTYPE:
            self._refuse(message)
        read_structure(message, self._limits, _UNTESTED)
        expanded = without_doctype(utf8(message.data, message.encoding), ids=False)
        result = self._compiled.match(expanded, "utf-8", False)
        if isinstance(result, int):
            self._refuse(message)
        return result

    def _refuse(self, message: Message) -> NoReturn:
        read_structure(message, self._limits, _UNTESTED)
        raise AssertionError("the compiled kernel refused a message that the reader in Python accepts")

    def read(self, message: Message, with_text: bool, with_source: bool) -> Document:
        with_text = with_text or self.reads_text
        tokenizer = self._tuning.tokenizer
        return read_nodes(message, self._limits, _UNTESTED, with_text, with_source, tokenizer=tokenizer)

    def reached(self, document: Document, starts: list[int], inside: bool) -> ReachedElements | None:
        """Return what relative paths reach in a document; None if it is too deep for masks."""
        if not len(self._relative_paths):
            return ListedReach(NO_INTS, NO_INTS, NO_INTS, document)
        columns = document.columns
        if not isinstance(columns, _kernel.Document):  # it was read in Python
            columns = _kernel.Document.of_elements(document.names, document.parents, document.ends)
        reached = self._followed.reached(columns, starts, inside)
        if reached is None or columns.has_spans:
            return reached
        number, start, end = (np.frombuffer(column, np.int32) for column in reached.triples())
        return ListedReach(number, start, end, document)  # which finds the spans


class ResultSlots:
    """The slots of a result, listed in C on demand."""

    __slots__ = ("result",)

    def __init__(self, result: _kernel.Result) -> None:
        self.result = result

    def read(self) -> Ints:
        return np.frombuffer(self.result.slots(), np.int32)

    def count(self) -> int:
        return self.result.count


class KernelMatches:
    """What the automaton in C found in a message."""

    __slots__ = (
        "_automaton",
        "_document",
        "_message",
        "_result",
        "_with_source",
        "_with_text",
        "slots",
    )

    def __init__(
        self,
        automaton: KernelAutomaton,
        message: Message,
        result: _kernel.Result,
        with_text: bool,
        with_source: bool,
    ) -> None:
        self._automaton = automaton
        self._message = message
        self._result = result
        self._with_text = with_text
        self._with_source = with_source
        self._document: Document | None = None
        self.slots = ResultSlots(result)

    @property
    def joined(self) -> bool:
        return self._result.joined

    @property
    def twig_candidates(self) -> Ints:
        return NO_INTS if self._result.joined else np.frombuffer(self._result.candidates(), np.int32)

    @property
    def bound_slots(self) -> Ints:
        return np.frombuffer(self._result.bound()[0], np.int32)

    @property
    def bound_to(self) -> Ints:
        return np.frombuffer(self._result.bound()[1], np.int32)

    @property
    def bound_elements(self) -> list[tuple[int, tuple[int, ...]]]:
        return _kernel.group_bound(*self._result.bound())

    @property
    def document(self) -> Document:
        if self._document is None:
            self._document = self._automaton.read(self._message, self._with_text, self._with_source)
        return self._document

    def reached(self, starts: list[int], inside: bool = False) -> ReachedElements | None:
        if not self._result.joined:
            return None
        return self._automaton.reached(self.document, starts, inside)
