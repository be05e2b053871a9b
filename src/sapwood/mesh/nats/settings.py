"""Settings of a broker's NATS side, and the names of its subjects, streams and bucket."""

from __future__ import annotations

import importlib.util
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from sapwood.errors import ArgumentError

_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class TransportSettings:
    """Where the NATS servers of a broker are, how it signs in, and how much may be on its way.

    `domain` is the JetStream domain of the broker's own site, `hub_domain` that of the hub, which keeps the
    mesh's bucket; both are None with a single server without domains.
    """

    mesh: str
    broker: str
    servers: list[str]
    domain: str | None = None
    hub_domain: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    credentials_file: Path | None = None
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    spill: int = 2_000_000_000
    """Bytes that a link's stream may hold while its receiver is away; beyond, senders are refused."""
    window: int = 64
    """Payloads of a link that are published and not yet acknowledged by its stream."""
    window_bytes: int = 8_000_000
    """Their bytes; one payload may be larger."""
    credit: int = 256
    """Payloads of a link that are handed over, or requested, and not released."""
    credit_bytes: int = 32_000_000
    """Their bytes; a payload of several parts may exceed them."""
    ack_timeout: float = 5.0
    """Seconds without any acknowledgement after which what a link has in flight counts as failed."""
    replicas: int = 1
    """Servers of the site that keep each stream of a link."""
    hub_replicas: int = 1
    """Servers of the hub that keep the mesh's bucket."""
    linger: float = 600.0
    """Seconds after which the stream of a neighbour that is gone is deleted."""

    def __post_init__(self) -> None:
        check_name("mesh", self.mesh)
        check_name("broker", self.broker)
        if not self.servers:
            raise ArgumentError("no NATS server is given: servers needs a URL such as nats://127.0.0.1:4222")
        for what, domain in (("domain", self.domain), ("hub_domain", self.hub_domain)):
            if domain is not None:
                check_name(what, domain)
        for what in ("spill", "window", "window_bytes", "credit", "credit_bytes", "replicas", "hub_replicas"):
            if getattr(self, what) < 1:
                raise ArgumentError(f"{what} is {getattr(self, what)}; it has to be 1 or more")
        if self.ack_timeout <= 0:
            raise ArgumentError(f"ack_timeout is {self.ack_timeout}; it has to be more than 0 seconds")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ArgumentError("tls_certificate and tls_key belong together: give both, or none")
        if self.credentials_file is not None:
            if not self.credentials_file.is_file():
                raise ArgumentError(
                    f"credentials_file: {self.credentials_file} is not a file that can be read"
                )
            if importlib.util.find_spec("nkeys") is None:
                raise ArgumentError("credentials_file needs nkeys: pip install 'nats-py[nkeys]'")

    def tls_context(self) -> ssl.SSLContext | None:
        """Return what connections are encrypted with, or None where the URLs decide."""
        if self.tls_ca is None and self.tls_certificate is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
            if self.tls_certificate is not None:
                context.load_cert_chain(self.tls_certificate, self.tls_key)
        except OSError as error:  # includes ssl.SSLError
            raise ArgumentError(f"the TLS files of the NATS connection cannot be used: {error}") from None
        return context

    def inbound_subject(self, neighbour: str) -> str:
        return f"sapwood.{self.mesh}.link.{neighbour}.{self.broker}"

    def outbound_subject(self, neighbour: str) -> str:
        return f"sapwood.{self.mesh}.link.{self.broker}.{neighbour}"

    def control_subject(self, broker: str) -> str:
        return f"sapwood.{self.mesh}.control.{broker}"

    def stream(self, sender: str, receiver: str) -> str:
        """Return the name of a link's stream.

        An underscore of a name is written `=` in it, which no name has: otherwise the streams from `a_b` to
        `c` and from `a` to `b_c` would have one name.
        """
        mesh, sender, receiver = (name.replace("_", "=") for name in (self.mesh, sender, receiver))
        return f"SAPWOOD_{mesh}_LINK_{sender}_{receiver}"

    @property
    def bucket(self) -> str:
        return f"sapwood_{self.mesh}"


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_name(what: str, name: str) -> None:
    """Raise `ArgumentError` unless the name can be a part of a subject and of a stream's name."""
    if not is_name(name):
        raise ArgumentError(
            f"{name!r} cannot be the name of a {what}: it may have letters of ASCII, digits, '-' and '_' only"
        )
