"""Messages without the elements that nobody reads: slices of their bytes, so that what is left is unchanged.

    kept    elements at the end of a read path; all that is inside of them, if they are read whole
            elements around kept ones, with all attributes and with the text directly inside
            the root element, and what is before and after it
    cut     other elements, with all that is inside of them
            elements that no binding selects (see `binding_selection`)

A message that is not UTF-8, or declares entities or default attributes, is not cut.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Self

from sapwood.engine.kernel.kernel_reader import read_nodes
from sapwood.engine.limits import Limits
from sapwood.engine.message.encoding import is_utf8
from sapwood.engine.message.message_reader import Message
from sapwood.errors import MessageError
from sapwood.mesh.projection.binding_selection import BindingSelection
from sapwood.mesh.projection.path_state import PathState, step_paths
from sapwood.mesh.routing.condition_codec import pack_form, unpack_form
from sapwood.mesh.routing.read_codec import reads_from_form, reads_to_form
from sapwood.mesh.routing.read_paths import ReadPath, ReadPaths

_MOST_TAG_PATHS = 20_000
"""that a plan remembers, since other sites choose the names in messages"""
_IDENTITY_BYTES = 12
_REMEMBERED = 256
"""plans that are kept, with what they have learnt of messages"""


class PruningNode:
    """A node of the trie of tag paths in messages: what a plan says of elements there. See `ReaderNode`."""

    attributes = text = value = None
    __slots__ = ("_children", "_plan", "_state", "is_read", "is_whole")

    def __init__(self, plan: PruningPlan, state: PathState, is_inside: bool) -> None:
        self._plan = plan
        self._state = state
        self._children: dict[str, PruningNode] = {}
        ended = [plan.paths[path] for path, step in state if step == len(plan.paths[path].steps)]
        self.is_whole = is_inside or any(path.is_whole for path in ended)
        """whether all that is inside is kept"""
        self.is_read = self.is_whole or bool(ended)

    def __getitem__(self, name: str) -> Self:
        child = self._children.get(name)
        if child is None:
            child = self._plan.step(self._state, name, self.is_whole)
            if self._plan.nodes < _MOST_TAG_PATHS:
                self._plan.nodes += 1
                self._children[name] = child
        return child  # type: ignore[return-value]


class PruningPlan:
    """Read paths, ready to cut messages by them."""

    def __init__(self, reads: ReadPaths) -> None:
        self.reads = reads
        self.paths: list[ReadPath] = sorted(reads, key=lambda path: (path.steps, path.is_whole, str(path)))
        self.nodes = 0
        """tag paths that are remembered"""
        self.root = PruningNode(self, frozenset((path, 0) for path in range(len(self.paths))), False)
        self.bindings = BindingSelection(self.paths) if any(path.binding for path in self.paths) else None
        """None: no path is read inside of some elements only"""

    @cached_property
    def encoded(self) -> bytes:
        """The read paths as bytes."""
        return pack_form(reads_to_form(self.reads))

    @cached_property
    def identity(self) -> bytes:
        """A hash of the read paths, which no other plan has."""
        return blake2b(self.encoded, digest_size=_IDENTITY_BYTES).digest()

    def step(self, state: PathState, name: str, is_inside: bool) -> PruningNode:
        """Return what the plan says of the children with a name, of elements in a state."""
        if is_inside:
            return PruningNode(self, frozenset(), True)
        return PruningNode(self, step_paths(self.paths, state, name), False)


@lru_cache(maxsize=_REMEMBERED)
def make_plan(reads: ReadPaths) -> PruningPlan:
    """Return the plan of read paths, the same one for equal paths."""
    return PruningPlan(reads)


@lru_cache(maxsize=_REMEMBERED)
def decode_plan(data: bytes) -> PruningPlan:
    """Return the plan in bytes; raises RouteError."""
    return make_plan(reads_from_form(unpack_form(data)))


def prune(body: bytes, plan: PruningPlan, limits: Limits) -> bytes:
    """Return a message without the elements that are not in a plan; as it is, if it cannot be cut."""
    message = Message(body)
    if not is_utf8(message.data, message.encoding) or message.data != body:
        return body
    try:
        has_bindings = plan.bindings is not None
        document = read_nodes(message, limits, plan.root, with_text=has_bindings, with_source=True)
    except MessageError:  # which is told where it is matched
        return body
    if not document.verbatim or document.source != body:
        return body
    kept = _find_kept(document.parents, document.ends, document.names, plan.root)
    if plan.bindings is not None:
        plan.bindings.cut(document, kept)
    if all(kept):
        return body
    starts, stops = document.spans
    pieces: list[bytes] = []
    at, element = 0, 1
    while element < len(kept):
        if kept[element]:
            element += 1
            continue
        pieces.append(body[at : starts[element]])
        at = stops[element]
        element = document.ends[element]
    pieces.append(body[at:])
    return b"".join(pieces)


def _find_kept(parents: list[int], ends: list[int], names: list[str], root: PruningNode) -> bytearray:
    """Return, by element, whether it is kept; the document and the root element are."""
    kept = bytearray(len(parents))
    kept[0] = kept[1] = 1
    nodes: list[PruningNode] = [root] * len(parents)
    element, last = 1, len(parents)
    while element < last:
        node = nodes[element] = nodes[parents[element]][names[element]]
        if node.is_read:
            around = element
            while not kept[around]:
                kept[around] = 1
                around = parents[around]
        if node.is_whole:
            end = ends[element]
            kept[element:end] = b"\1" * (end - element)
            element = end
        else:
            element += 1
    return kept
