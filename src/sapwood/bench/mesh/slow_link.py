"""A TCP link of limited bandwidth on this machine: a proxy that passes bytes on as a token bucket lets it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import perf_counter, sleep

_HOST = "127.0.0.1"
_PACKET = 1_460
"""bytes that are passed on at once, as in a segment on Ethernet: the size of the bucket"""
_TIMEOUT = 30.0
"""seconds after which a connection on which nothing happens is given up"""
_WAKE_UP = 2e-4
"""seconds by which a thread may wake up too late"""
_LENGTH = struct.Struct("!I")


class TokenBucket:
    """Says when bytes may pass. The bucket holds one packet, so that there are no bursts."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free = 0.0

    def take(self, size: int, now: float) -> float:
        """Return the time at which that many bytes have passed, behind those before them."""
        self._free = max(self._free, now) + size / self._rate
        return self._free


class SlowLink:
    """Both ends of a link: `send` at one, `receive` at the other."""

    def __init__(self, sender: socket.socket, receiver: socket.socket) -> None:
        self._sender = sender
        self._receiver = receiver

    def send(self, payload: bytes) -> None:
        """Send a payload, behind its length; it has to fit the buffers of sockets, since it waits there."""
        self._sender.sendall(_LENGTH.pack(len(payload)) + payload)

    def receive(self) -> bytes:
        """Wait for a payload."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return self._read(length)

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            some = self._receiver.recv(size - len(parts))
            if not some:
                raise ConnectionError("the other end of a link has closed it")
            parts += some
        return bytes(parts)


@contextmanager
def open_slow_link(megabits: float) -> Iterator[SlowLink]:
    """Connect two ends through a proxy of some megabits a second, on loopback only."""
    with _listen() as at_proxy, _listen() as at_receiver:
        sender = _connect(at_proxy)
        into_proxy, _ = at_proxy.accept()
        from_proxy = _connect(at_receiver)
        receiver, _ = at_receiver.accept()
    ends = sender, into_proxy, from_proxy, receiver
    for end in ends:
        end.settimeout(_TIMEOUT)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    proxy = Thread(target=_pass_on, args=(into_proxy, from_proxy, TokenBucket(megabits * 1e6 / 8)))
    proxy.start()
    try:
        yield SlowLink(sender, receiver)
    finally:
        sender.close()
        proxy.join(_TIMEOUT)
        for end in ends:
            end.close()


def _listen() -> socket.socket:
    return socket.create_server((_HOST, 0), backlog=1)


def _connect(listener: socket.socket) -> socket.socket:
    return socket.create_connection(listener.getsockname(), timeout=_TIMEOUT)


def _pass_on(source: socket.socket, target: socket.socket, bucket: TokenBucket) -> None:
    """Pass bytes on until the source is closed, or nothing comes or goes for too long."""
    try:
        while some := source.recv(_PACKET):
            until = bucket.take(len(some), perf_counter())
            if (wait := until - perf_counter() - _WAKE_UP) > 0:
                sleep(wait)
            while perf_counter() < until:  # because sleep ends late, by as much as a packet may take
                pass
            target.sendall(some)
    except OSError:
        return  # the other thread fails at its end, and says so
