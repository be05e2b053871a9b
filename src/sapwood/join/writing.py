"""What is made of messages that meet: their nodes, copied into the query's template."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from sapwood.engine.document import ContextNode, Document
from sapwood.engine.evaluate import Evaluator
from sapwood.engine.index import Index
from sapwood.engine.reader import Message
from sapwood.join.meaning import BlockPattern, Meaning, Nodes
from sapwood.join.past import Record
from sapwood.lang.joining import Join
from sapwood.lang.transformation import Hole
from sapwood.transform.fragments import Fragments
from sapwood.transform.templates import Writer, written
from sapwood.transform.walk import reached

_ROOM = 4 * 1024 * 1024
"""bytes of messages that are kept as trees after they were read again"""


class Loaded:
    """A message whose nodes are at hand."""

    def __init__(self, document: Document, evaluator: Evaluator, fragments: Fragments) -> None:
        self.document = document
        self.evaluator = evaluator
        self.writer = Writer(document, fragments)
        self._ways: dict[BlockPattern, list[Nodes]] = {}

    def ways(self, pattern: BlockPattern) -> list[Nodes]:
        known = self._ways.get(pattern)
        if known is None:
            known = self._ways[pattern] = pattern.ways(self.evaluator)
        return known


class Library:
    """Messages as trees. Those that are asked for again and again are read once."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._loaded: OrderedDict[Record, Loaded] = OrderedDict()
        self._bytes = 0

    def load(self, record: Record) -> Loaded:
        """The nodes of a message that came in earlier."""
        loaded = self._loaded.get(record)
        if loaded is not None:
            self._loaded.move_to_end(record)
            return loaded
        message = Message(record.data)
        message.encoding = record.encoding
        loaded = self._loaded[record] = self.loaded(Evaluator(self._index.read(message, all=True)))
        self._bytes += len(record.data)
        while self._bytes > _ROOM and len(self._loaded) > 1:
            self._bytes -= len(self._loaded.popitem(last=False)[0].data)
        return loaded

    def __getstate__(self) -> dict[str, object]:
        return {"_index": self._index, "_loaded": OrderedDict(), "_bytes": 0}

    def loaded(self, evaluator: Evaluator) -> Loaded:
        """A message that was just read."""
        return Loaded(evaluator.document, evaluator, Fragments(evaluator.document))


class Maker:
    """What one query makes of messages that meet."""

    def __init__(self, join: Join) -> None:
        assert join.template is not None
        self._parts = tuple(part if isinstance(part, Hole) else part.encode() for part in join.template)
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
            written(
                self._parts, (self._filled(hole, way[place[hole.origin]], loaded) for hole in self._holes)
            )
            for way in ways
        ]

    def _filled(
        self, hole: Hole, node: ContextNode, loaded: Sequence[Loaded]
    ) -> tuple[Writer, list[ContextNode]]:
        message = loaded[self._block_of[hole.origin]]
        return message.writer, reached(hole.paths, node, message.evaluator, message.document)


Load = Callable[[Record], Loaded]
