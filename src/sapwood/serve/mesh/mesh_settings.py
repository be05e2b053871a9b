"""The settings of a node, which the server gives its engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeshSettings:
    """The names of a mesh and of its broker here, and what its links are to do."""

    mesh: str
    broker: str
    format: str = "auto"
    """the label of the format in which links carry bodies, or `auto`"""
    skeletons: str = "auto"
    """whether messages carry skeletons, and are routed by them: `always`, `never`, or `auto`: if it pays"""
    hits: str = "auto"
    """whether messages carry which routes of a neighbour they meet, if it forwards them: `auto` or `never`"""
    dictionary_samples: int = 200
    """messages of a stream from which a dictionary is trained"""
    scheduling: str = "dependencies"
    """the order of routing, link transformation and local work: `dependencies`, `priority` or `fcfs`"""
    project: str = "auto"
    """whether what nobody beyond reads is cut from messages: `always`, `never`, or `auto`: if it pays"""
    table_budget: int | None = None
    """bytes of routes that a neighbour is told, beyond which they are generalised; None: never"""
