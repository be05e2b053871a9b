"""The errors of the NATS side of the mesh."""

from __future__ import annotations

from sapwood.errors import SapwoodError


class MeshUnavailable(SapwoodError):
    """Raised if a NATS server, or the mesh's bucket at the hub, cannot be reached at present."""


class RevisionConflict(SapwoodError):
    """Raised for a compare-and-set whose key has changed meanwhile: read it again, and decide anew."""

    def __init__(self, key: str, revision: int) -> None:
        self.key = key
        self.revision = revision
        expected = f"is not at revision {revision} any more" if revision else "exists already"
        super().__init__(
            f"the key {key!r} of the mesh {expected}: read it again, and retry with its revision"
        )

    def __reduce__(self) -> tuple[type[RevisionConflict], tuple[str, int]]:
        return type(self), (self.key, self.revision)


class NatsServerError(SapwoodError):
    """Raised if a nats-server of a trial is not installed, or does not start."""
