"""The configuration of a broker in a mesh: the table `[mesh]` of a server's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ByteSize, Field, StringConstraints

from sapwood.config_file import ConfigError, ConfigTable, Duration
from sapwood.lang.literals.durations import parse_duration
from sapwood.serve.mesh.mesh_settings import MeshSettings

if TYPE_CHECKING:
    from sapwood.mesh.nats.settings import TransportSettings

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$", max_length=60)]


LinkFormat = Literal[
    "auto",
    "text",
    "text-zlib",
    "text-zstd",
    "text-zstd-trained",
    "elements",
    "elements-zlib",
    "named-elements",
    "named-elements-zlib",
    "named-elements-zstd",
    "named-elements-zstd-trained",
]
"""written out, since the libraries of a mesh need not be there to read a file"""


class MeshConfig(ConfigTable):
    """A broker of a mesh: its name, the broker it is linked with, and its NATS servers."""

    name: Name = "mesh"
    """of the mesh: letters, digits, `-` and `_`"""
    broker: Name
    """the name of this broker, which no other one has, and which stays that of this log"""
    parent: Name | None = None
    """the broker that this one is linked with when it joins; the first one of a mesh has none"""
    servers: Annotated[tuple[str, ...], Field(min_length=1)] = ("nats://127.0.0.1:4222",)
    """the NATS servers of this site, as URLs"""
    domain: Name | None = None
    """the JetStream domain of this site, if it is a leaf node"""
    hub_domain: Name | None = None
    """the JetStream domain of the hub, if there is one"""
    user: str | None = None
    """for the NATS servers"""
    password: str | None = None
    """of the user"""
    token: str | None = None
    """instead of a user and a password"""
    credentials: str | None = None
    """a file with the credentials of a NATS user"""
    tls_ca: str | None = None
    """a file with the certificates that NATS servers are checked with"""
    tls_certificate: str | None = None
    """a file with the certificate of this broker"""
    tls_key: str | None = None
    """a file with its private key"""
    replicas: Annotated[int, Field(ge=1, le=5)] = 1
    """NATS servers of this site that keep what neighbours send"""
    hub_replicas: Annotated[int, Field(ge=1, le=5)] = 1
    """NATS servers of the hub that keep the directory of the mesh"""
    spill: ByteSize = ByteSize(2 * 10**9)
    """bytes that the NATS server keeps of a neighbour while this broker is away"""
    format: LinkFormat = "auto"
    """in which links carry the bodies of messages: `auto` for what takes the least time, or one of `text`,
    `text-zlib`, `text-zstd`, `text-zstd-trained`, `elements`, `elements-zlib`, `named-elements`,
    `named-elements-zlib`, `named-elements-zstd`, `named-elements-zstd-trained`"""
    skeletons: Literal["auto", "always", "never"] = "auto"
    """whether messages for brokers that forward them carry their tag paths, to be routed by these alone;
    `auto`: where there is no compiled kernel, or a neighbour has thousands of routes"""
    hits: Literal["auto", "never"] = "auto"
    """whether messages for brokers that forward them carry which conditions they meet of those that the
    neighbour has told, so that it need not read them"""
    project: Literal["auto", "always", "never"] = "auto"
    """whether what nobody beyond a link reads is cut from messages, where only transformations are there;
    `auto`: if that saves a fifth of the bytes, and more time on the link than it takes"""
    dictionary_samples: Annotated[int, Field(ge=8, le=10_000)] = 200
    """messages of a stream from which the dictionary is trained that compresses the later ones"""
    scheduling: Literal["dependencies", "priority", "fcfs"] = "dependencies"
    """when local subscriptions see a message of another broker: if they take long, after it is forwarded
    (`dependencies`; `priority`, for comparison, encodes it for all neighbours, whether they want it or
    not), or together with its routing, in the order of arrival (`fcfs`)"""
    confirm_wait: Duration = "10 s"
    """how long the answer to a change of a subscription waits until all brokers have it"""

    @property
    def confirm_seconds(self) -> float:
        """How long the answer to a change waits for all brokers."""
        return parse_duration(self.confirm_wait)

    def engine_settings(self) -> MeshSettings:
        """Return what the engine has to know."""
        return MeshSettings(
            self.name,
            self.broker,
            self.format,
            self.skeletons,
            hits=self.hits,
            dictionary_samples=self.dictionary_samples,
            scheduling=self.scheduling,
            project=self.project,
        )

    def transport_settings(self) -> TransportSettings:
        """Return what the transport has to know; raises ConfigError if its libraries are missing."""
        try:
            from sapwood.mesh.nats.settings import TransportSettings
        except ImportError as error:
            raise ConfigError(
                f"a mesh needs {error.name}: in a clone of Sapwood, pip install '.[mesh]'"
            ) from error

        def file(path: str | None) -> Path | None:
            return Path(path) if path is not None else None

        return TransportSettings(
            mesh=self.name,
            broker=self.broker,
            servers=list(self.servers),
            domain=self.domain,
            hub_domain=self.hub_domain,
            user=self.user,
            password=self.password,
            token=self.token,
            credentials_file=file(self.credentials),
            tls_ca=file(self.tls_ca),
            tls_certificate=file(self.tls_certificate),
            tls_key=file(self.tls_key),
            spill=self.spill,
            replicas=self.replicas,
            hub_replicas=self.hub_replicas,
        )
