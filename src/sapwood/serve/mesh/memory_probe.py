"""The memory that an engine takes for subscriptions and routes, measured in a process of its own.

    parent ─► pickled items on the standard input ─► engine of a tenant, tables of a node
    parent ◄─ resident bytes at every mark        ◄─

A new process has no freed memory that could be used again, and the items come one by one, so that the texts
and routes that the engine keeps are part of what is measured.
"""

from __future__ import annotations

import gc
import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO

from sapwood.engine.limits import Limits
from sapwood.errors import SapwoodError
from sapwood.mesh.core.frames import TableFrame
from sapwood.mesh.core.tables.route_table import RouteTable
from sapwood.mesh.planning.memory_forecast import NodePart
from sapwood.mesh.routing.route import Route, decode_route, encode_route
from sapwood.serve.engine.inspection import read_memory
from sapwood.serve.mesh.node.local_routes import LocalRoutes
from sapwood.serve.tenants.tenant_engine import TenantEngine

_TENANT = ""
_AT_ONCE = 500
"""subscriptions or routes of one item"""
_DECLARE, _PUT, _WANT, _MARK = range(4)
"""what an item starts with"""
_WARM_UP = ("/warm[@up = 1]//please", "//warm/up")
_INBOX = 1


class ProbeError(SapwoodError):
    """Raised if the process that measures memory fails."""


def measure_parts(parts: Sequence[NodePart]) -> list[int]:
    """Register parts one after the other in a new process; return by how many bytes each makes it grow."""
    items = b"".join(map(pickle.dumps, _make_items(parts)))
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, input=items, capture_output=True, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "no reason given"
        raise ProbeError(
            f"the process that measures memory has ended with {done.returncode}: {reason}; "
            "'sapwood mesh plan --no-memory' does without it"
        )
    return [max(0, after - before) for before, after in pairwise(json.loads(done.stdout))]


def _make_items(parts: Sequence[NodePart]) -> Iterator[tuple[object, ...]]:
    prefixes: dict[str, str] = {}
    for part in parts:
        for each in part.subscriptions[:1]:  # those of one broker have the same prefixes
            prefixes |= each.namespaces
    yield _DECLARE, prefixes
    yield (_MARK,)
    for part in parts:
        for start in range(0, len(part.subscriptions), _AT_ONCE):
            some = part.subscriptions[start : start + _AT_ONCE]
            yield _PUT, [(each.query, each.streams) for each in some]
        for link, routes in part.routes.items():
            for start in range(0, len(routes), _AT_ONCE):
                yield _WANT, link, [encode_route(route) for route in routes[start : start + _AT_ONCE]]
        yield (_MARK,)


class _Node:
    """What an engine holds of subscriptions and routes, as in the process of a broker."""

    def __init__(self) -> None:
        self._engine = TenantEngine(Limits(), separate_results=True)
        self._local = LocalRoutes()
        self._table = RouteTable()
        self._links: dict[str, dict[int, Route]] = {}
        self._places = 0
        self._table.change_local((), ())

    def declare(self, namespaces: dict[str, str]) -> None:
        self._engine.declare(namespaces)

    def put(self, subscriptions: list[tuple[str, tuple[str, ...]]]) -> None:
        for query, streams in subscriptions:
            self._places += 1
            self._engine.put(self._places, query, _INBOX, streams)
            self._local.put(_TENANT, self._places, query, streams, self._engine.namespaces)
        added, removed = self._local.take()
        self._table.change_local(added, removed)
        self._tell()

    def want(self, link: str, encoded: list[bytes]) -> None:
        if link not in self._links:
            self._links[link] = {}
            self._table.add_link(link)
        routes = [decode_route(data) for data in encoded]
        self._table.receive(link, TableFrame(1, tuple(routes), begins=False, ends=False))
        self._links[link].update((route.key, route) for route in routes)
        self._engine.set_routes(list(self._links).index(link), routes)
        self._tell()

    def _tell(self) -> None:
        for link in self._links:
            self._table.take_additions(link, always=True)


def _read_memory() -> int:
    gc.collect()
    return read_memory()


def run(source: BinaryIO) -> list[int]:
    """Do what the items of a stream say; return the resident bytes at all marks."""
    logging.disable(logging.CRITICAL)  # a query that is refused takes no memory
    warm = _Node()
    warm.put([(query, ()) for query in _WARM_UP])
    node = _Node()
    marks: list[int] = []
    while True:
        try:
            item = pickle.load(source)  # written by the process that has started this one
        except EOFError:
            return marks
        if item[0] == _DECLARE:
            node.declare(item[1])
        elif item[0] == _PUT:
            node.put(item[1])
        elif item[0] == _WANT:
            node.want(item[1], item[2])
        else:
            marks.append(_read_memory())


if __name__ == "__main__":
    json.dump(run(sys.stdin.buffer), sys.stdout)
