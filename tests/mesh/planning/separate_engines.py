"""Engines of two linked brokers in two processes, so that the memory of one can be read.

    this process: the engine of "there"  ◄── pipe ──►  another process: the engine of "here"

Both load their subscriptions from stores, exchange tables as brokers do, and come to rest.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from sapwood.mesh.core.topology import build_tree
from sapwood.serve.engine.inspection import read_memory
from sapwood.store import NewSubscription, SubscriptionStore
from tests.support.mesh.linked_engines import LinkedEngine, LinkedEngines

HERE, THERE = "here", "there"
TREE: dict[str, str | None] = {HERE: None, THERE: HERE}
_PATIENCE = 240.0


class HalfMesh(LinkedEngines):
    """One of two engines, and a pipe to the other one."""

    def __init__(self, folder: Path, name: str, pipe: Connection) -> None:
        self.topology = build_tree(TREE)
        self.cut = set()
        self._pipe = pipe
        self.is_over = False
        self.memory: int | None = None
        """of the other process, when it is at rest"""
        self.engines = {name: LinkedEngine(self, name, folder / name)}

    def carry(self, sender: str, receiver: str, payload: bytes) -> bool:
        """Send a payload to the other process."""
        self._pipe.send((sender, receiver, payload, False))
        return True

    def carry_control(self, sender: str, receiver: str, payload: bytes) -> None:
        """Send a control to the other process."""
        self._pipe.send((sender, receiver, payload, True))

    def work(self) -> None:
        """Take what has come, and let the engine work."""
        while self._pipe.poll():
            item = self._pipe.recv()
            if item is None:
                self.is_over = True
            elif isinstance(item, int):
                self.memory = item
            else:
                sender, receiver, payload, is_control = item
                engine = self.engines[receiver]
                (engine.arrive_control if is_control else engine.arrive)(sender, payload)
        for engine in self.engines.values():
            if not engine.step():
                time.sleep(0.005)
                engine.drain()

    def count_routes(self, name: str) -> int:
        """Return how many routes the node of an engine knows."""
        runtime = self.engines[name].engine._mesh
        assert runtime is not None
        return len(runtime.node.table)


def fill_store(folder: Path, name: str, queries: Sequence[str]) -> None:
    """Write subscriptions where an engine looks for them."""
    (folder / name).mkdir(parents=True)
    with SubscriptionStore(str(folder / name / "log.db")) as store:
        store.import_many(NewSubscription(str(n), query, "desk") for n, query in enumerate(queries))


def run_here(folder: Path, pipe: Connection, routes: int) -> None:
    """Run the engine of "here" until the other process has seen enough; send its memory at rest."""
    mesh = HalfMesh(folder, HERE, pipe)
    while not (mesh.is_linked() and mesh.count_routes(HERE) >= routes):
        mesh.work()
    for _ in range(100):  # until all is stored, and nothing is being sent
        mesh.work()
    gc.collect()
    pipe.send(read_memory())
    while not mesh.is_over:
        mesh.work()


def measure_engine(folder: Path, here: Sequence[str], there: Sequence[str], routes: int) -> int:
    """Return the resident bytes of the engine of "here", with the subscriptions of both brokers."""
    fill_store(folder, HERE, here)
    fill_store(folder, THERE, there)
    own, other = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=run_here, args=(folder, other, routes), daemon=True)
    process.start()
    mesh = HalfMesh(folder, THERE, own)
    try:
        deadline = time.monotonic() + _PATIENCE
        while mesh.memory is None:
            assert time.monotonic() < deadline, "the engines are not at rest in time"
            assert process.is_alive(), "the engine has ended"
            mesh.work()
        return mesh.memory
    finally:
        own.send(None)
        process.join(30)
        if process.is_alive():
            process.kill()
        mesh.stop()
