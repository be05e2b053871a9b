"""The settings of a node, which the server gives its engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeshSettings:
    """The names of a mesh and of its broker here."""

    mesh: str
    broker: str
