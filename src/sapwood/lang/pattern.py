"""The algebra that every language compiles to and every engine evaluates: tree patterns.

    Path    Step Step …                   nodes reached from a context node
    Step    axis test [condition] …       one move, then conditions in order
    Condition
      Has(path, test, first)              some node (or the first one) of the path passes the test
      Named(test)                         the context element has this name
      Position(…)                         where the node stands among those the step found
      And, Or, Not

All of them are immutable and hash-consed: two equal ones are one object, so equality is identity and
sub-patterns shared by many queries are compiled, indexed and evaluated once. The table holds them weakly;
what no query uses any more is freed.

Names are the reader's: `local`, `uri}local`, `*`, `uri}*`, ANY_NAMESPACE + `}local`, and `text()` for text
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache
from itertools import groupby
from threading import RLock
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar
from weakref import ref

from sapwood.lang.namespaces import exact_prefixes

T = TypeVar("T", bound="Interned")
TEXT = "text()"
ANY_NAMESPACE = "\0"
"""the URI of name tests that pass a local name in any namespace; no URI contains this character"""


class Axis(Enum):
    __hash__ = object.__hash__  # of the one object for each: that of Enum is computed in Python
    CHILD = "/"
    DESCENDANT = "//"  # `/descendant-or-self::node()/child::`, so positions count per parent
    ATTRIBUTE = "/@"


_INTERNING = RLock()


class _KeyedRef(ref["Interned"]):
    """A weak reference that knows the key of what it refers to."""

    __slots__ = ("key",)
    key: tuple[object, ...]


INTERNED: dict[tuple[object, ...], _KeyedRef] = {}
"""All that is hash-consed, by class and parts. A WeakValueDictionary takes twice as long, and a query is a
dozen objects."""


def _forget(dead: ref[Interned]) -> None:
    assert isinstance(dead, _KeyedRef)
    with _INTERNING:
        if INTERNED.get(dead.key) is dead:  # another one may have been made meanwhile
            del INTERNED[dead.key]


class Interned:
    """Base of hash-consed objects: construction returns the one object with these parts."""

    __slots__ = ("__weakref__",)
    _fields: ClassVar[tuple[str, ...]] = ()  # the parts, in the order of the constructor
    _setters: ClassVar[tuple[Callable[[Any, Any], None], ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._setters = tuple([getattr(cls, name).__set__ for name in cls._fields])

    @classmethod
    def _intern(cls: type[T], *parts: object) -> T:
        key = (cls, *parts)
        known = INTERNED.get(key)
        found: T | None = known() if known is not None else None  # type: ignore[assignment]
        return found if found is not None else cls._create(key, parts)

    @classmethod
    def _create(cls: type[T], key: tuple[object, ...], parts: tuple[object, ...]) -> T:
        made = object.__new__(cls)
        for put, part in zip(cls._setters, parts, strict=True):
            put(made, part)
        kept = _KeyedRef(made, _forget)
        kept.key = key
        first = INTERNED.setdefault(key, kept)  # at once, so that of several threads one is first
        if first is kept:
            return made
        found: T | None = first()  # type: ignore[assignment]
        if found is not None:
            return found
        with _INTERNING:  # the object is gone, but its reference has not been removed yet
            if INTERNED.get(key) is first:
                del INTERNED[key]
        return cls._create(key, parts)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __reduce__(self) -> tuple[type[Interned], tuple[object, ...]]:
        return type(self), tuple(getattr(self, name) for name in self._fields)

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memo: object) -> T:
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


class Test(Interned):
    """A comparison of one string-value with a constant; a float compares as numbers do in XPath."""

    __slots__ = _fields = ("op", "value")
    op: str  # = != < <= > >= contains starts-with
    value: str | float

    def __new__(cls, op: str, value: str | float) -> Test:
        return cls._intern(op, value)

    def __str__(self) -> str:
        return f"{self.op} {format_constant(self.value)}"


class Condition(Interned):
    """A condition on a node, as in a predicate."""

    __slots__ = ()

    @property
    def positional(self) -> bool:
        """Whether the condition depends on the position of the node among its candidates."""
        return False


class Path(Interned):
    __slots__ = _fields = ("steps",)
    steps: tuple[Step, ...]

    def __new__(cls, steps: tuple[Step, ...]) -> Path:
        return cls._intern(steps)

    def __str__(self) -> str:
        return "".join(map(str, self.steps))


class Step(Interned):
    __slots__ = _fields = ("axis", "test", "conditions")
    axis: Axis
    test: str
    conditions: tuple[Condition, ...]

    def __new__(cls, axis: Axis, test: str, conditions: tuple[Condition, ...] = ()) -> Step:
        return cls._intern(axis, test, conditions)

    def __str__(self) -> str:
        return self.axis.value + format_name(self.test) + "".join(f"[{c}]" for c in self.conditions)


class Has(Condition):
    """Some node of the path passes the test (any node, if there is no test).

    With `first`, only the first node in document order counts: so XPath converts node-sets to strings.
    An empty path is the context node itself.
    """

    __slots__ = _fields = ("path", "test", "first")
    first: bool
    path: Path
    test: Test | None

    def __new__(cls, path: Path, test: Test | None = None, first: bool = False) -> Has:
        return cls._intern(path, test, first and test is not None)

    def __str__(self) -> str:
        path = format_relative_path(self.path)
        if self.test is None:
            return path
        if self.test.op in ("contains", "starts-with"):
            if self.first or selects_at_most_one(self.path):
                return f"{self.test.op}({path}, {format_constant(self.test.value)})"
            return f"{path}[{self.test.op}(., {format_constant(self.test.value)})]"
        return f"{f'string({path})' if self.first else path} {self.test}"


class Named(Condition):
    __slots__ = _fields = ("test",)
    test: str

    def __new__(cls, test: str) -> Named:
        return cls._intern(test)

    def __str__(self) -> str:
        return f"self::{format_name(self.test)}"


class Position(Condition):
    """`position() op n`, `position() op last() + n`, or, with `of_size`, `last() op n`."""

    __slots__ = _fields = ("op", "n", "from_last", "of_size")
    from_last: bool
    n: float
    of_size: bool
    op: str

    def __new__(cls, op: str, n: float, from_last: bool = False, of_size: bool = False) -> Position:
        return cls._intern(op, n, from_last, of_size)

    @property
    def positional(self) -> bool:
        return True

    def __str__(self) -> str:
        subject = "last()" if self.of_size else "position()"
        if not self.from_last:
            return f"{subject} {self.op} {format_constant(self.n)}"
        offset = f" {'+' if self.n > 0 else '-'} {format_constant(abs(self.n))}" if self.n else ""
        return f"{subject} {self.op} last(){offset}"


class _Several(Condition):
    """A set of conditions: flat, without repetitions, in one canonical order."""

    __slots__ = _fields = ("items",)
    items: tuple[Condition, ...]
    _word: ClassVar[str]
    _empty: ClassVar[str]

    @property
    def positional(self) -> bool:
        return any(item.positional for item in self.items)

    def __str__(self) -> str:
        if not self.items:
            return self._empty
        return f" {self._word} ".join(f"({i})" if isinstance(i, _Several) else str(i) for i in self.items)


class And(_Several):
    __slots__ = ()
    _word, _empty = "and", "true()"

    def __new__(cls, items: tuple[Condition, ...]) -> And:
        return cls._intern(items)


class Or(_Several):
    __slots__ = ()
    _word, _empty = "or", "false()"

    def __new__(cls, items: tuple[Condition, ...]) -> Or:
        return cls._intern(items)


class Not(Condition):
    __slots__ = _fields = ("item",)
    item: Condition

    def __new__(cls, item: Condition) -> Not:
        return cls._intern(item)

    @property
    def positional(self) -> bool:
        return self.item.positional

    def __str__(self) -> str:
        return f"not({self.item})"


@lru_cache(maxsize=2_048)
def plain_step(axis: Axis, test: str) -> Step:
    """Return a step without conditions, cached: most queries are made of few of them."""
    return Step(axis, test)


EMPTY = Path(())
TRUE = And(())
FALSE = Or(())


def all_of(items: Iterable[Condition]) -> Condition:
    """Return the conjunction of conditions in canonical form."""
    return _combine(And, items, FALSE)


def any_of(items: Iterable[Condition]) -> Condition:
    """Return the disjunction of conditions in canonical form."""
    return _combine(Or, items, TRUE)


def _combine(kind: type[And | Or], items: Iterable[Condition], decisive: Condition) -> Condition:
    """Return the combination of conditions in canonical form; a decisive one makes it equal to that one."""
    flat: dict[Condition, None] = {}
    for item in items:
        if item is decisive:
            return decisive
        flat.update(dict.fromkeys(item.items if isinstance(item, kind) else (item,)))
    return next(iter(flat)) if len(flat) == 1 else kind(sort_patterns(flat))


_SORT_KEY: ContextVar[Callable[[Interned], str]] = ContextVar("sort_key", default=str)


def sort_patterns(patterns: Iterable[T]) -> tuple[T, ...]:
    """Return conditions or paths in their canonical order: that of their texts."""
    return tuple(sorted(patterns, key=_SORT_KEY.get()))


@contextmanager
def use_sort_key(key: Callable[[Interned], str]) -> Iterator[None]:
    """Sort patterns by another key inside the block, where their names stand for others."""
    token = _SORT_KEY.set(key)
    try:
        yield
    finally:
        _SORT_KEY.reset(token)


def negation(item: Condition) -> Condition:
    if item is TRUE:
        return FALSE
    if item is FALSE:
        return TRUE
    return item.item if isinstance(item, Not) else Not(item)


def canonical_predicates(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Merge successive predicates into canonical form: neighbours without positions are one conjunction."""
    merged: list[Condition] = []
    for positional, neighbours in groupby(conditions, lambda condition: condition.positional):
        if positional:
            merged += neighbours
        else:
            together = all_of(neighbours)  # at once, since each conjunction sorts its parts
            merged += [together] if together is not TRUE else []
    return (FALSE,) if FALSE in merged else tuple(merged)


def add_condition(path: Path, condition: Condition) -> Path:
    """Return the path with a further condition on the nodes that it reaches."""
    if condition is TRUE or not path.steps:
        return path
    last = path.steps[-1]
    return Path(
        (*path.steps[:-1], Step(last.axis, last.test, canonical_predicates((*last.conditions, condition))))
    )


def canonical_text(part: object) -> str:
    """Return a text that no other pattern has; for a path of bare names, the path as written."""
    if isinstance(part, Path):
        return "".join(map(canonical_text, part.steps))
    if isinstance(part, Step):
        bare = part.axis.value + (repr(part.test) if "}" in part.test else part.test)
        return bare + f"[{canonical_text(part.conditions)}]" if part.conditions else bare
    if isinstance(part, Interned):
        return f"{type(part).__name__}({','.join(canonical_text(getattr(part, f)) for f in part._fields)})"
    if isinstance(part, tuple):
        return f"({''.join(canonical_text(item) + ',' for item in part)})"
    return repr(part)


_PREFIXES: ContextVar[Mapping[str, str]] = ContextVar("prefixes", default=MappingProxyType({}))


@contextmanager
def use_prefixes(namespaces: Mapping[str, str]) -> Iterator[None]:
    """Format names of these namespaces with their prefixes inside the block.

    For output only: the canonical order of patterns depends on their text.
    """
    prefixes: dict[str, str] = {}
    for prefix, uri in exact_prefixes(namespaces).items():
        prefixes.setdefault(uri, prefix)
    token = _PREFIXES.set(prefixes)
    try:
        yield
    finally:
        _PREFIXES.reset(token)


def to_clark_name(name: str) -> str:
    """Convert a name of the message reader into Clark notation, `{uri}local`."""
    return "{" + name.replace(ANY_NAMESPACE, "*") if "}" in name else name


def format_name(name: str) -> str:
    """Format a name of the message reader with a prefix, if one is known for its namespace."""
    uri, brace, local = name.rpartition("}")
    prefix = "*" if uri == ANY_NAMESPACE else _PREFIXES.get().get(uri) if brace else None
    return f"{prefix}:{local}" if prefix is not None else to_clark_name(name)


def format_constant(value: str | float) -> str:
    if isinstance(value, str):
        return f"'{value}'" if "'" not in value else f'"{value}"'
    return str(int(value)) if value == value and abs(value) < 1e15 and value == int(value) else repr(value)


def selects_at_most_one(path: Path) -> bool:
    """Return whether a path reaches at most one node from its context, so that `first` has no effect."""
    if not path.steps:
        return True
    only = path.steps[0]
    return len(path.steps) == 1 and only.axis is Axis.ATTRIBUTE and not is_wildcard(only.test)


def is_wildcard(test: str) -> bool:
    """Return whether a name test passes more than one name."""
    return test.endswith("*") or test.startswith(ANY_NAMESPACE)


def format_relative_path(path: Path) -> str:
    """Format a path as it is written inside a predicate."""
    text = str(path)
    if not text:
        return "."
    if text.startswith("//"):
        return "." + text
    return text[1:]
