"""A file of all that a node was told and has asked for, to be replayed in tests and to find defects.

Each run of an engine has a file of its own; pickled: first what the node began with, then pairs of an event
and its actions. What is pickled at the end of a killed run may be cut off.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sapwood.mesh.core.actions import Action
from sapwood.mesh.core.events import Event
from sapwood.mesh.core.node_state import NodeState
from sapwood.mesh.core.topology import Topology

FOLDER = "SAPWOOD_MESH_EVENTS"
"""the environment variable with the folder of the files; nothing is written without it"""


@dataclass(frozen=True, slots=True)
class NodeStart:
    """What a node began with."""

    state: NodeState
    topology: Topology
    incarnation: int
    table_budget: int | None = None


class EventLog:
    """Writes the events and actions of a node."""

    def __init__(self, path: Path, start: NodeStart) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = path.open("wb")
        pickle.dump(start, self._file)

    def add(self, event: Event, actions: Sequence[Action]) -> None:
        """Write what followed from an event."""
        pickle.dump((event, actions), self._file)

    def close(self) -> None:
        """Write all that is not written yet."""
        self._file.close()


def open_event_log(start: NodeStart) -> EventLog | None:
    """Return the log of a run that begins, if one is wanted."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return None
    return EventLog(Path(folder) / f"{start.state.name}-{start.incarnation}.events", start)


def read_event_log(path: Path) -> tuple[NodeStart, Iterator[tuple[Event, list[Action]]]]:
    """Return what a node began with, and its events with their actions."""
    file = path.open("rb")
    start: NodeStart = pickle.load(file)
    return start, _read_pairs(file)


def _read_pairs(file: BinaryIO) -> Iterator[tuple[Event, list[Action]]]:
    with file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):  # the run was killed
                return
