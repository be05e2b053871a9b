"""The addresses that webhooks may be sent to, checked when a connection is made.

A subscriber chooses the URL that the broker calls, so the URL must not lead into the network that the broker
stands in. The host is resolved once, every address of it is checked, and the connection is made to one of
these addresses: a name server that would answer a second question differently is not asked one. TLS and the
Host header keep the name of the host.

What an address is (public, private, ...) is in tables of our own: `ipaddress.is_global` differs between
versions of Python, and knows neither addresses that carry an IPv4 address nor the metadata services of
clouds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

import httpcore
import httpx

from sapwood.errors import ArgumentError

_log = logging.getLogger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Returns all addresses of a host, or raises OSError."""

_LONGEST_URL = 2000
_ADDRESSES_TRIED = 4
_LOOKUPS = 32
"""lookups of names at the same time"""
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")

_METADATA = [
    ipaddress.ip_network(each)
    for each in (
        # most are at 169.254.169.254, which is link-local
        "100.100.100.200/32",  # Alibaba
        "168.63.129.16/32",  # Azure, in the middle of public addresses
        "192.0.0.192/32",  # Oracle
        "fd00:ec2::/32",  # AWS
        "fd20:ce::/32",  # Google
    )
]
_KINDS: list[tuple[Network, str]] = [
    (ipaddress.ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "private"),  # carrier-grade NAT
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "private"),  # tests of networks
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),  # Teredo among others
        ("2001:db8::/32", "reserved"),
        ("3fff::/20", "reserved"),
    )
]
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_CARRIES_IPV4 = [
    # (network, how many bits follow the IPv4 address in it)
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
]
_WHAT_IT_IS = {"metadata": "its address is that of a cloud's metadata service"}
_PRIVATE_USE = frozenset({"private", "loopback"})
"""what `allow_private` allows; the other kinds are never a receiver of webhooks"""


def parse_target(url: str) -> httpx.URL:
    """Return a URL that has the form of a webhook's; raises `ArgumentError` for others."""
    if len(url) > _LONGEST_URL:
        raise ArgumentError(f"the url of a webhook has at most {_LONGEST_URL:,} characters")
    try:
        target = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise ArgumentError(f"the url of a webhook is not valid: {error}") from None
    if target.scheme not in ("http", "https"):
        raise ArgumentError(f"the url of a webhook begins with https:// or http://, not {target.scheme!r}")
    host = target.raw_host.decode("ascii", "replace")
    if not _HOST_NAME.fullmatch(_normalize(host)) and _parse_literal(host) is None:
        raise ArgumentError(f"the url of a webhook names a host, https://host/path; {host!r} is none")
    if target.userinfo:
        raise ArgumentError(
            "the url of a webhook has no user or password; check the signature of requests instead"
        )
    if target.fragment:
        raise ArgumentError("the url of a webhook has no fragment: remove what follows '#'")
    if target.port is not None and not 1 <= target.port <= 65535:
        raise ArgumentError(f"the port of a webhook's url is from 1 to 65535, not {target.port}")
    return target


def classify(address: Address) -> str:
    """Return the kind of an address: `public`, `private`, `loopback`, `metadata`, ..."""
    address = _carried(address)
    if any(address in network for network in _METADATA):
        return "metadata"
    for network, kind in _KINDS:
        if address in network:
            return kind
    if address.version == 6 and address not in _GLOBAL_UNICAST:
        return "reserved"
    return "public"


def _carried(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address leads to, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        for network, following in _CARRIES_IPV4:
            if address in network:
                return ipaddress.IPv4Address(int(address) >> following & 0xFFFFFFFF)
    return address


class TargetPolicy:
    """The addresses that a broker sends webhooks to: public ones, and those that its operator allows."""

    def __init__(self, *, allow_private: bool = False, allowed: Iterable[str] = ()) -> None:
        """Allow public addresses, and more.

        Args:
            allow_private: allow private and loopback addresses, but no metadata services of clouds
            allowed: networks (`10.1.0.0/16`), addresses and names of hosts that are allowed whatever they are
        """
        self.allow_private = allow_private
        self._networks: list[Network] = []
        self._hosts: set[str] = set()
        for entry in allowed:
            self._allow(entry)

    def _allow(self, entry: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(entry))
        except ValueError as error:
            name = _normalize(entry)
            if not _HOST_NAME.fullmatch(name) or name.rpartition(".")[2].isdigit():
                raise ArgumentError(
                    f"an allowed target is a network, an address or a host name, not {entry!r}: {error}"
                ) from None
            self._hosts.add(name)

    def check(self, host: str, addresses: Sequence[Address]) -> None:
        """Raise `ArgumentError` unless every address of a host is allowed."""
        if _normalize(host) in self._hosts:
            return
        for address in addresses:
            kind = classify(address)
            if not self._allows(address, kind):
                # The subscriber reads the error: it must not tell the addresses of names in our own network.
                _log.warning("webhook target %s refused: its address %s is %s", host, address, kind)
                raise ArgumentError(
                    f"webhooks are not sent to {host}: {_WHAT_IT_IS.get(kind, f'its address is {kind}')}; "
                    "use a public host, or have the operator of the broker allow this one"
                )

    def _allows(self, address: Address, kind: str) -> bool:
        if kind == "public" or (self.allow_private and kind in _PRIVATE_USE):
            return True
        carried = _carried(address)
        return any(address in network or carried in network for network in self._networks)


class SystemResolver:
    """Resolves names as the operating system does, in threads of its own.

    A name server that does not answer keeps a thread for half a minute. Neither other work of the process nor
    its end waits for these threads, and one host has one lookup at a time.
    """

    def __init__(self, lookups: int = _LOOKUPS) -> None:
        self._limit = asyncio.Semaphore(lookups)
        self._pending: dict[tuple[str, int], asyncio.Task[Sequence[Address]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        """Return all addresses of a host."""
        key = host, port
        task = self._pending.get(key)
        if task is None:
            task = self._pending[key] = asyncio.create_task(self._look_up(host, port))
            task.add_done_callback(lambda done: self._finish(key, done))
        return await asyncio.shield(task)

    def _finish(self, key: tuple[str, int], done: asyncio.Task[Sequence[Address]]) -> None:
        del self._pending[key]
        if not done.cancelled():
            done.exception()  # those who waited may all have given up: nobody else looks at it

    async def _look_up(self, host: str, port: int) -> Sequence[Address]:
        async with self._limit:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[Sequence[Address]] = loop.create_future()

            def work() -> None:
                result: Sequence[Address] = ()
                failure: OSError | None = None
                try:
                    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                    result = [ipaddress.ip_address(sockaddr[0]) for *_, sockaddr in found]
                except (OSError, UnicodeError) as error:
                    failure = error if isinstance(error, OSError) else OSError(str(error))
                with suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(finish, result, failure)

            def finish(result: Sequence[Address], failure: OSError | None) -> None:
                if answer.done():
                    return
                if failure is not None:
                    answer.set_exception(failure)
                else:
                    answer.set_result(result)

            threading.Thread(target=work, name="webhook-lookup", daemon=True).start()
            return await answer


async def resolve_target(host: str, port: int, policy: TargetPolicy, resolver: Resolver) -> Sequence[Address]:
    """Return the addresses of a host, all of which are allowed; raises `ArgumentError` if one is not."""
    literal = _parse_literal(host)
    addresses = [literal] if literal is not None else list(dict.fromkeys(await resolver(host, port)))
    if not addresses:
        raise OSError(f"{host} has no address")
    policy.check(host, addresses)
    return addresses


async def check_target(url: str, policy: TargetPolicy, resolver: Resolver) -> None:
    """Raise `ArgumentError` if a webhook cannot be sent to a URL, for a report when it is configured."""
    target = parse_target(url)
    try:
        await resolve_target(target.raw_host.decode(), _port(target), policy, resolver)
    except OSError:
        raise ArgumentError(
            f"the host of the webhook's url, {target.host}, is not found; check its name"
        ) from None


def _port(target: httpx.URL) -> int:
    return target.port or (443 if target.scheme == "https" else 80)


def _parse_literal(host: str) -> Address | None:
    """Return the address that a host is written as, also in forms such as `0x7f.1`, or None for a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    with suppress(OSError, ValueError):
        return ipaddress.IPv4Address(socket.inet_aton(_normalize(host)))
    return None


def _normalize(host: str) -> str:
    return host.lower().rstrip(".")


class TargetBackend(httpcore.AsyncNetworkBackend):
    """Connects to a host at an address that has been checked, without resolving it again."""

    def __init__(
        self,
        policy: TargetPolicy,
        resolver: Resolver,
        inner: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._policy = policy
        self._resolver = resolver
        self._inner = inner if inner is not None else httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of a host that answers."""
        limit = timeout if timeout is not None else 60.0
        end = time.monotonic() + limit
        try:
            async with asyncio.timeout(limit):
                addresses = await resolve_target(host, port, self._policy, self._resolver)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host} is not resolved within {limit:g} s") from error
        except OSError as error:
            raise httpcore.ConnectError(f"{host} is not found") from error
        tried = list(addresses)[:_ADDRESSES_TRIED]
        failure: Exception = httpcore.ConnectError()
        for left, address in zip(range(len(tried), 0, -1), tried, strict=True):
            # A part of the time for each: the first address may not answer at all where IPv6 is broken.
            share = max(end - time.monotonic(), 0.001) / left
            try:
                return await self._inner.connect_tcp(str(address), port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: no webhook is sent to a socket of the file system."""
        raise httpcore.ConnectError("webhooks are sent over TCP only")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._inner.sleep(seconds)
