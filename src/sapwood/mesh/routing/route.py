"""Routes: what a broker tells its neighbours of a subscription, so that they forward what it may match.

    XPath               its necessary condition            one route, or one for each stream
    for-where-return    the condition of its bindings      likewise
    XSCL                the pattern of each block          one route for each block, of the block's stream

This is ONYX's Map. A route is weaker than its query or equal to it, never stronger: a message that the query
matches, or that takes part in its joins, meets the condition. The compilers see to that for XPath (where only
lxml can decide, the condition says what patterns can say); here, blocks become patterns, and a condition that
is too large for the wire becomes the one that every message meets. Most filters have a shape in common with
others: the condition of those is encoded without compiling the query, and decoded where it is needed.

Beside its condition, a route of a transformation says which parts of a message are read (see `read_paths`),
so that links can leave out the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from threading import RLock
from weakref import ref

from sapwood.errors import ArgumentError, RouteError
from sapwood.lang.fwr.model import Transformation
from sapwood.lang.languages import XPATH, compile_text
from sapwood.lang.pattern import TRUE, Condition, Has, Path, add_condition, all_of
from sapwood.lang.query import Query
from sapwood.lang.xscl.model import MESSAGE, Join
from sapwood.mesh.routing.condition_codec import from_form, pack, pack_form, pack_parts, to_form, unpack_form
from sapwood.mesh.routing.condition_templates import share_encoder
from sapwood.mesh.routing.read_codec import reads_from_form, reads_to_form
from sapwood.mesh.routing.read_paths import ReadPaths, reads_of

_REMEMBERED = 50_000
"""queries of which the routes are kept: real subscriptions repeat a query a dozen times over"""
_LONGEST_REMEMBERED = 1_000
"""characters of such a query"""


class Route:
    """A condition on the messages of one tenant, of one stream or of all.

    Routes are immutable and equal by key; construction returns the one object that has the key. The table
    holds them weakly: what no table or query uses any more is freed.
    """

    __slots__ = ("__weakref__", "_condition", "exact", "identity", "key", "reads", "stream", "tenant")

    identity: bytes
    """tenant, stream and condition in their canonical encoding, and what is read, if that is known"""
    key: int
    """128 bits, the same for equal routes in every process"""
    tenant: str
    stream: str | None
    """None: messages of any stream; empty: those that are published without one"""
    exact: bool
    """for information, and no part of the key: whether the query that the route was first made for matches
    every message that meets the condition"""
    reads: ReadPaths | None
    """what is read of a message; None: all of it"""
    _condition: Condition | None

    def __new__(
        cls,
        tenant: str,
        stream: str | None,
        condition: Condition,
        exact: bool = True,
        reads: ReadPaths | None = None,
    ) -> Route:
        """Return the route; RouteError if it is too large for an encoding."""
        parts = [tenant, stream, to_form(condition)]
        if reads is not None:
            parts.append(reads_to_form(reads))
        identity = pack_form(parts)
        return _intern(_key_of(identity), identity, tenant, stream, exact, condition, reads)

    @property
    def condition(self) -> Condition:
        """The condition on the document node; decoded when it is asked for first."""
        condition = self._condition
        if condition is None:
            condition = from_form(unpack_form(self.identity)[2])
            object.__setattr__(self, "_condition", condition)
        return condition

    @property
    def of_whole_messages(self) -> Route:
        """The route with the same condition that reads all of a message."""
        if self.reads is None:
            return self
        return Route(self.tenant, self.stream, self.condition, self.exact)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Route is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Route is immutable")

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Route) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[type[Route], tuple[str, str | None, Condition, bool, ReadPaths | None]]:
        return type(self), (self.tenant, self.stream, self.condition, self.exact, self.reads)

    def __copy__(self) -> Route:
        return self

    def __deepcopy__(self, memo: object) -> Route:
        return self

    def __repr__(self) -> str:
        of = "any stream" if self.stream is None else f"stream {self.stream!r}"
        return f"<Route {self.key:032x} of {self.tenant!r}, {of}: {self.condition}>"


class _KeyedRef(ref[Route]):
    """A weak reference that knows the key of its route."""

    __slots__ = ("key",)
    key: int


_ROUTES: dict[int, _KeyedRef] = {}
"""by key; like patterns, and for the same reason, not in a WeakValueDictionary, which takes twice as long"""
_INTERNING = RLock()


def _forget(dead: ref[Route]) -> None:
    assert isinstance(dead, _KeyedRef)
    with _INTERNING:
        if _ROUTES.get(dead.key) is dead:  # another one may have been made meanwhile
            del _ROUTES[dead.key]


def _find(key: int) -> Route | None:
    known = _ROUTES.get(key)
    return known() if known is not None else None


def _intern(
    key: int,
    identity: bytes,
    tenant: str,
    stream: str | None,
    exact: bool,
    condition: Condition | None,
    reads: ReadPaths | None = None,
) -> Route:
    """Return the route with a key, which is made of the other arguments if there is none."""
    known = _find(key)
    if known is not None:
        return known
    made = object.__new__(Route)
    put = object.__setattr__
    put(made, "key", key)
    put(made, "identity", identity)
    put(made, "tenant", tenant)
    put(made, "stream", stream)
    put(made, "exact", exact)
    put(made, "reads", reads)
    put(made, "_condition", condition)
    kept = _KeyedRef(made, _forget)
    kept.key = key
    with _INTERNING:
        known = _find(key)  # another thread may have made it meanwhile
        if known is None:
            _ROUTES[key] = kept
    return known or made


# -- encoding --------------------------------------------------------------------------------------------


def encode_route(route: Route) -> bytes:
    """Return a route as bytes: what its key is made of, which is the same for equal routes, and `exact`."""
    return route.identity + (b"\1" if route.exact else b"\0")


def decode_route(data: bytes) -> Route:
    """Return the route that was encoded; RouteError, with the reason, if the bytes are none."""
    identity, flag = data[:-1], data[-1:]
    if flag not in (b"\0", b"\1"):
        raise RouteError("a route that does not end with whether it is exact")
    key = _key_of(identity)
    known = _find(key)
    if known is not None:  # with the same bytes, since no others have this key
        return known
    match unpack_form(identity):
        case [str(tenant), None | str() as stream, form]:
            return _intern(key, identity, tenant, stream, flag == b"\1", from_form(form))
        case [str(tenant), None | str() as stream, form, reads]:
            read = reads_from_form(reads)
            return _intern(key, identity, tenant, stream, flag == b"\1", from_form(form), read)
    raise RouteError("a route that is not a tenant, a stream or nil, a condition, and perhaps read paths")


def _key_of(identity: bytes) -> int:
    return int.from_bytes(blake2b(identity, digest_size=16).digest(), "big")


# -- the routes of queries -------------------------------------------------------------------------------


def routes_of(
    query: str,
    namespaces: Mapping[str, str],
    tenant: str,
    streams: Sequence[str] = (),
    language: str | None = None,
) -> tuple[Route, ...]:
    """Return the routes of a subscription, each once: a message that it matches meets one of them.

    Without `streams`, it gets messages of all. Raises QueryError if the text is no query, and ArgumentError
    for a join that is restricted to streams, or an unknown language.
    """
    if isinstance(streams, str):
        raise ArgumentError(f"streams are several names, such as [{streams!r}], not one string")
    make = _remembered_routes if len(query) <= _LONGEST_REMEMBERED else _make_routes
    return make(query, tuple(sorted(namespaces.items())), tenant, tuple(streams), language)


def _make_routes(
    query: str,
    namespaces: tuple[tuple[str, str], ...],
    tenant: str,
    streams: tuple[str, ...],
    language: str | None,
) -> tuple[Route, ...]:
    if language in (None, XPATH):
        condition = share_encoder(frozenset(namespaces)).encode(query)
        if condition is not None:
            return tuple([_encoded_route(tenant, s, condition) for s in dict.fromkeys(streams or (None,))])
    compiled = compile_text(query, dict(namespaces), language)
    if isinstance(compiled, Join):
        if streams:
            raise ArgumentError("a join is not restricted to streams: it names those that it reads itself")
        blocks = [
            _fitting_route(tenant, block.stream, block_condition(compiled, number), _is_exact(compiled))
            for number, block in enumerate(compiled.blocks)
        ]
        return tuple(dict.fromkeys(blocks))
    exact = _is_exact(compiled)
    reads = reads_of(compiled) if isinstance(compiled, Transformation) else None
    return tuple(
        [
            _fitting_route(tenant, stream, compiled.condition, exact, reads)
            for stream in dict.fromkeys(streams or (None,))
        ]
    )


_remembered_routes = lru_cache(maxsize=_REMEMBERED)(_make_routes)


def _encoded_route(tenant: str, stream: str | None, condition: bytes) -> Route:
    """Return the route of an exact query, given the encoding of its condition; see `_fitting_route`."""
    try:
        identity = pack_parts((pack(tenant), pack(stream), condition))
    except RouteError:
        return Route(tenant, stream, TRUE, exact=False)
    return _intern(_key_of(identity), identity, tenant, stream, True, None)


def _is_exact(compiled: Query | Transformation | Join) -> bool:
    """Return whether a query matches all messages that meet its condition."""
    if isinstance(compiled, Join):
        return not compiled.links
    return compiled.exact and not (isinstance(compiled, Transformation) and compiled.joints)


def _fitting_route(
    tenant: str, stream: str | None, condition: Condition, exact: bool, reads: ReadPaths | None = None
) -> Route:
    """Return the route of a condition, or that of all messages if the condition is too large to be sent."""
    try:
        return Route(tenant, stream, condition, exact, reads)
    except RouteError:
        return Route(tenant, stream, TRUE, exact=False)


def block_condition(join: Join, block: int) -> Condition:
    """Return the condition on messages with a way to bind all variables of a block.

    A variable that several others start from is a step with a condition for each of these; one that only one
    starts from is a step on the way to it. Whether a node is a number is left open.
    """
    below: dict[int, list[int]] = {}
    for number, variable in enumerate(join.variables):
        if variable.block == block and not variable.numeric:
            below.setdefault(variable.origin, []).append(number)

    def reach(number: int) -> Condition:
        """The condition on the node that a variable starts from."""
        path = join.variables[number].path
        while len(after := below.get(number, [])) == 1:
            number = after[0]
            path = Path((*path.steps, *join.variables[number].path.steps))
        inner = all_of([reach(each) for each in after])
        if not path.steps:
            return inner
        return Has(add_condition(path, inner))

    return all_of([reach(number) for number in below.get(MESSAGE, [])])
