"""The output of joins: nodes of the joined messages, copied into the query's template."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from sapwood.engine.index import Index
from sapwood.engine.message.document import ContextNode, Document
from sapwood.engine.message.message_reader import Message
from sapwood.engine.pattern_evaluator import PatternEvaluator
from sapwood.join.evaluation.bindings import Binding, BlockPattern, JoinBindings
from sapwood.join.state.message_state import StoredMessage
from sapwood.lang.fwr.model import TemplateHole
from sapwood.lang.xscl.model import Join
from sapwood.transform.nested_loops import select_nodes
from sapwood.transform.result_writer import ResultWriter, fill_template
from sapwood.transform.source_fragments import SourceFragments

_CACHE_BYTES = 64 * 1024 * 1024
"""memory that parsed messages may take"""
_TREE_BYTES, _ELEMENT_BYTES, _TEXT_BYTES, _ATTRIBUTE_BYTES, _ANSWER_BYTES, _BINDING_BYTES = (
    4_500,
    220,
    100,
    80,
    250,
    100,
)
"""estimated memory of each"""


class LoadedMessage:
    """A parsed message, with the bindings of patterns that were enumerated so far."""

    def __init__(self, document: Document, evaluator: PatternEvaluator, fragments: SourceFragments) -> None:
        self.document = document
        self.evaluator = evaluator
        self.writer = ResultWriter(document, fragments)
        self.counted = 0
        """the last estimate of its bytes that the cache counted"""
        self._fragments = fragments
        self._bindings: dict[BlockPattern, list[Binding]] = {}
        self._bytes_of_bindings = 0
        attributes = sum(map(len, document.attributes)) // 2 + 2 * len(document.declarations)
        texts = _TEXT_BYTES * len(document.texts) + document.text_offsets[-1]
        self._bytes_of_document = (
            _TREE_BYTES
            + _ELEMENT_BYTES * len(document)
            + _ATTRIBUTE_BYTES * attributes
            + texts
            + len(document.source)
        )

    @property
    def bytes(self) -> int:
        """The estimated memory of the message and of all that is cached with it."""
        return (
            self._bytes_of_document
            + self._bytes_of_bindings
            + _ANSWER_BYTES * self.evaluator.answers
            + 2 * self._fragments.bytes
        )

    def bindings(self, pattern: BlockPattern) -> list[Binding]:
        """Return the bindings of a pattern, which are cached."""
        known = self._bindings.get(pattern)
        if known is None:
            known = self._bindings[pattern] = pattern.bindings(self.evaluator)
            self._bytes_of_bindings += _BINDING_BYTES * (1 + len(known))
        return known


class MessageCache:
    """A cache of parsed messages, bounded by memory; the least recently used is dropped first.

    What is cached with a message grows while it is used, so its size is estimated anew on the next access.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._loaded: OrderedDict[StoredMessage, LoadedMessage] = OrderedDict()
        self._bytes = 0
        self._last: LoadedMessage | None = None

    def load(self, record: StoredMessage) -> LoadedMessage:
        """Return an earlier message, parsed again if it is not cached."""
        if self._last is not None:
            self._update_bytes(self._last)
        loaded = self._loaded.get(record)
        if loaded is not None:
            self._loaded.move_to_end(record)
        else:
            message = Message(record.data)
            message.encoding = record.encoding
            loaded = load_message(PatternEvaluator(self._index.read(message, all=True)))
            self._loaded[record] = loaded
        self._last = loaded
        self._update_bytes(loaded)
        while self._bytes > _CACHE_BYTES and len(self._loaded) > 1:
            self._bytes -= self._loaded.popitem(last=False)[1].counted
        return loaded

    def _update_bytes(self, loaded: LoadedMessage) -> None:
        estimate = loaded.bytes
        self._bytes += estimate - loaded.counted
        loaded.counted = estimate

    def __getstate__(self) -> dict[str, object]:
        return {"_index": self._index, "_loaded": OrderedDict(), "_bytes": 0, "_last": None}


def load_message(evaluator: PatternEvaluator) -> LoadedMessage:
    """Return a message that was just parsed."""
    return LoadedMessage(evaluator.document, evaluator, SourceFragments(evaluator.document))


class OutputBuilder:
    """Builds the output of one query from joined messages."""

    def __init__(self, join: Join) -> None:
        assert join.template is not None
        self._parts = tuple(
            part if isinstance(part, TemplateHole) else part.encode() for part in join.template
        )
        self._holes = join.holes
        self._names = {number: variable.name for number, variable in enumerate(join.variables)}
        self._block_of = [variable.block for variable in join.variables]
        self._bindings = JoinBindings(join, len(join.blocks), {hole.origin for hole in self._holes})

    def bindings(self, messages: Sequence[LoadedMessage]) -> list[Binding]:
        """Return the bindings of the variables that the template's holes start from."""
        return self._bindings.enumerate(messages)

    def named(self, bindings: list[Binding]) -> list[dict[str, ContextNode]]:
        """Return bindings by the names of the variables, without those that have none."""
        names = [self._names[number] for number in self._bindings.wanted]
        return [{n: node for n, node in zip(names, binding, strict=True) if n} for binding in bindings]

    def build(self, messages: Sequence[LoadedMessage], bindings: list[Binding]) -> list[bytes]:
        """Return the template filled in for each binding."""
        place = {number: i for i, number in enumerate(self._bindings.wanted)}
        return [
            fill_template(
                self._parts,
                (self._select(hole, binding[place[hole.origin]], messages) for hole in self._holes),
            )
            for binding in bindings
        ]

    def _select(
        self, hole: TemplateHole, node: ContextNode, messages: Sequence[LoadedMessage]
    ) -> tuple[ResultWriter, list[ContextNode]]:
        message = messages[self._block_of[hole.origin]]
        return message.writer, select_nodes(hole.paths, node, message.evaluator, message.document)
