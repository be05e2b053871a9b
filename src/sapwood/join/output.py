"""What is made of messages that meet: their nodes, copied into the query's template."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from sapwood.engine.index import Index
from sapwood.engine.message.document import ContextNode, Document
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.join.evaluation.bindings import BlockPattern, Meaning, Nodes
from sapwood.join.state.message_state import StoredMessage
from sapwood.lang.fwr.model import TemplateHole
from sapwood.lang.xscl.model import Join
from sapwood.transform.nested_loops import select_nodes
from sapwood.transform.result_writer import ResultWriter, fill_template
from sapwood.transform.source_fragments import SourceFragments

_ROOM = 64 * 1024 * 1024
"""bytes that messages may take, kept as trees after they were read again"""
_OF_TREE, _OF_ELEMENT, _OF_TEXT, _OF_ATTRIBUTE, _OF_ANSWER, _OF_WAY = 4_500, 220, 100, 80, 250, 100
"""bytes that each of them takes, about"""


class Loaded:
    """A message whose nodes are at hand."""

    def __init__(self, document: Document, evaluator: PatternEvaluator, fragments: SourceFragments) -> None:
        self.document = document
        self.evaluator = evaluator
        self.writer = ResultWriter(document, fragments)
        self.counted = 0
        """bytes, when they were last estimated"""
        self._fragments = fragments
        self._ways: dict[BlockPattern, list[Nodes]] = {}
        self._of_ways = 0
        attributes = sum(map(len, document.attributes)) // 2 + 2 * len(document.declarations)
        texts = _OF_TEXT * len(document.texts) + document.text_offsets[-1]
        self._of_document = (
            _OF_TREE + _OF_ELEMENT * len(document) + _OF_ATTRIBUTE * attributes + texts + len(document.source)
        )

    @property
    def bytes(self) -> int:
        """About how much memory the message takes with all that was found out about it."""
        return (
            self._of_document
            + self._of_ways
            + _OF_ANSWER * self.evaluator.answers
            + 2 * self._fragments.bytes
        )

    def ways(self, pattern: BlockPattern) -> list[Nodes]:
        known = self._ways.get(pattern)
        if known is None:
            known = self._ways[pattern] = pattern.ways(self.evaluator)
            self._of_ways += _OF_WAY * (1 + len(known))
        return known


class Library:
    """Messages as trees. Those that are asked for again and again are read once."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._loaded: OrderedDict[StoredMessage, Loaded] = OrderedDict()
        self._bytes = 0
        self._last: Loaded | None = None

    def load(self, record: StoredMessage) -> Loaded:
        """The nodes of a message that came in earlier."""
        if self._last is not None:
            self._count(self._last)  # since it was loaded, more was found out about it
        loaded = self._loaded.get(record)
        if loaded is not None:
            self._loaded.move_to_end(record)
        else:
            message = Message(record.data)
            message.encoding = record.encoding
            loaded = self.loaded(PatternEvaluator(self._index.read(message, all=True)))
            self._loaded[record] = loaded
        self._last = loaded
        self._count(loaded)
        while self._bytes > _ROOM and len(self._loaded) > 1:
            self._bytes -= self._loaded.popitem(last=False)[1].counted
        return loaded

    def _count(self, loaded: Loaded) -> None:
        now = loaded.bytes
        self._bytes += now - loaded.counted
        loaded.counted = now

    def __getstate__(self) -> dict[str, object]:
        return {"_index": self._index, "_loaded": OrderedDict(), "_bytes": 0, "_last": None}

    def loaded(self, evaluator: PatternEvaluator) -> Loaded:
        """A message that was just read."""
        return Loaded(evaluator.document, evaluator, SourceFragments(evaluator.document))


class Maker:
    """What one query makes of messages that meet."""

    def __init__(self, join: Join) -> None:
        assert join.template is not None
        self._parts = tuple(
            part if isinstance(part, TemplateHole) else part.encode() for part in join.template
        )
        self._holes = join.holes
        self._names = {number: variable.name for number, variable in enumerate(join.variables)}
        self._block_of = [variable.block for variable in join.variables]
        self.meaning = Meaning(join, len(join.blocks), {hole.origin for hole in self._holes})

    def ways(self, loaded: Sequence[Loaded]) -> list[Nodes]:
        """The nodes of the variables that the template speaks of, way by way."""
        return self.meaning.ways(loaded)

    def named(self, ways: list[Nodes]) -> list[dict[str, ContextNode]]:
        """Ways by the names of the variables; those without a name are left out."""
        names = [self._names[number] for number in self.meaning.wanted]
        return [{n: node for n, node in zip(names, way, strict=True) if n} for way in ways]

    def pieces(self, loaded: Sequence[Loaded], ways: list[Nodes]) -> list[bytes]:
        """The template, written once for each way."""
        place = {number: i for i, number in enumerate(self.meaning.wanted)}
        return [
            fill_template(
                self._parts, (self._filled(hole, way[place[hole.origin]], loaded) for hole in self._holes)
            )
            for way in ways
        ]

    def _filled(
        self, hole: TemplateHole, node: ContextNode, loaded: Sequence[Loaded]
    ) -> tuple[ResultWriter, list[ContextNode]]:
        message = loaded[self._block_of[hole.origin]]
        return message.writer, select_nodes(hole.paths, node, message.evaluator, message.document)


Load = Callable[[StoredMessage], Loaded]
