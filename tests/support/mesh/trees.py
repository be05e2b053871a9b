"""Trees of brokers that tests start."""

from __future__ import annotations

from collections.abc import Mapping

from sapwood.mesh.nats.errors import NatsServerError
from sapwood.mesh.nats.local_servers import find_program
from tests.support.mesh.mesh_load import LATENESS
from tests.support.requirements import missing

SIX: Mapping[str, str | None] = {
    "root": None,
    "inner1": "root",
    "inner2": "root",
    "host1": "inner1",
    "host2": "inner1",
    "host3": "inner2",
}
"""six brokers on three levels"""
FOUR: Mapping[str, str | None] = {"root": None, "inner": "root", "host1": "inner", "host2": "inner"}
CHAIN: Mapping[str, str | None] = {"first": None, "middle": "first", "last": "middle"}
CONFIG = f'[joins]\nlateness = "{LATENESS:.0f} s"\n'
"""with which no message is too late for joins"""


def need_nats() -> None:
    """Skip the test where nats-server is missing."""
    try:
        find_program()
    except NatsServerError as error:
        missing(str(error))
