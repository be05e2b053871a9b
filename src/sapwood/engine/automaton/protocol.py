"""The seam between the index and its automaton.

The index knows queries: their slots, owners and needs, and how candidates are decided. An automaton knows
paths, tests and twigs, and finds the slots under which a message has them. There may be several automata, of
which an index has one: it asks them for nothing but what is named here.

An automaton may match a message without making a `Document` of it, and count without listing: so slots,
documents and relative paths are asked for where they are needed, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from sapwood.engine.automaton.predicate_index import Ints
from sapwood.engine.automaton.query_paths import Leaf, Twig
from sapwood.engine.automaton.registered_parts import RegisteredParts
from sapwood.engine.automaton.relative_paths import ReachedElements
from sapwood.engine.message.document import Document
from sapwood.engine.message.message_reader import Message


class MatchedSlots(Protocol):
    """The slots that a message matches, listed on demand; to be read before the queries change.

    It holds nothing of the message, which may be large.
    """

    def read(self) -> Ints:
        """Return the slots, ascending and each once."""
        ...

    def count(self) -> int:
        """Return the sum of the slots' weights."""
        ...


MatchedAhead: TypeAlias = object
"""What an automaton found in a message before its owner took the lock; its own affair."""


class AutomatonMatches(Protocol):
    """What an automaton finds in a message.

    If the message is too deep or too large for the twig join, `joined` is False: then nothing is bound, and
    twigs are not among the slots but among the `twig_candidates`, which an evaluator has to decide.
    """

    @property
    def slots(self) -> MatchedSlots:
        """The slots of all the parts that are found, except slots that bind elements."""
        ...

    @property
    def joined(self) -> bool: ...

    @property
    def twig_candidates(self) -> Ints:
        """If twigs are not joined, the slots of those whose leaves are all found somewhere."""
        ...

    @property
    def bound_slots(self) -> Ints:
        """The slots that bind elements, in any order and perhaps with repetitions."""
        ...

    @property
    def bound_to(self) -> Ints:
        """The element that each of the `bound_slots` is bound to."""
        ...

    @property
    def bound_elements(self) -> list[tuple[int, tuple[int, ...]]]:
        """The slots that bind elements, ascending, each with its elements in document order."""
        ...

    @property
    def document(self) -> Document:
        """The nodes of the message, read now if matching did not read them."""
        ...

    def reached(self, starts: list[int], inside: bool = False) -> ReachedElements | None:
        """Return what relative paths reach from elements given in document order and, with `inside`, from all
        their descendants; None if only an evaluator can tell: if no twigs are registered or joined."""
        ...


class QueryAutomaton(Protocol):
    """The parts of all queries, and the matching of messages against them."""

    @property
    def reads_text(self) -> bool:
        """Whether anything registered tests text."""
        ...

    def register(self, slot: int, parts: tuple[Leaf | Twig, ...], binds: bool = False) -> None:
        """Register the parts of a query's index plan, any of which finds it; `binds` reports the elements at
        which twigs match."""
        ...

    def register_path(self, slot: int, path: tuple[str, ...]) -> int:
        """Register a query that is one path, in symbols, unless one was registered so: return the slot
        that has it, which all such queries share."""
        ...

    def register_text(self, slot: int, text: str) -> int | None:
        """Register a query in the same way, given as text; None, with nothing registered, if the automaton
        cannot read it."""
        ...

    def unregister(self, slot: int) -> None:
        """Remove all parts of a query."""
        ...

    def set_weight(self, slot: int, weight: int) -> None:
        """Set what a slot adds to `MatchedSlots.count`; nothing, unless set."""
        ...

    def count(self, slots: Ints) -> int:
        """Return the sum of the weights of some slots."""
        ...

    def add_relative_path(self, path: tuple[str, ...]) -> int:
        """Add one use of a relative path, given in symbols, and return its number."""
        ...

    def remove_relative_path(self, number: int) -> None:
        """Take back one use of a relative path."""
        ...

    def relative_path_uses(self, number: int) -> int:
        """Return how often a relative path is used."""
        ...

    def clear_cache(self) -> None:
        """Drop what was learnt from messages; coming messages teach it again."""
        ...

    def dump(self) -> RegisteredParts:
        """Return everything that is registered; an automaton of either kind can load it."""
        ...

    def load(self, registered: RegisteredParts) -> None:
        """Register everything in an automaton that is empty."""
        ...

    def match_ahead(self, messages: Sequence[Message]) -> Sequence[MatchedAhead | None]:
        """Match messages while others may do the same, or change the queries: `find` completes it.

        None for a message that has to be matched in `find`.
        """
        ...

    def match_at_once(self, messages: Sequence[Message]) -> Sequence[MatchedSlots] | None:
        """Match messages in one call; None if one of them has to be matched by `find`."""
        ...

    def is_current(self, ahead: MatchedAhead | None) -> bool:
        """Return whether the queries have not been changed since a message was matched ahead."""
        ...

    def find(
        self, message: Message, with_text: bool, with_source: bool, ahead: MatchedAhead | None = None
    ) -> AutomatonMatches:
        """Match a message; if its document is read, then with text and source where these are wanted.

        What was matched ahead is used if the queries have not been changed since.
        """
        ...

    def read(self, message: Message, with_text: bool, with_source: bool) -> Document:
        """Read the nodes of a message."""
        ...
