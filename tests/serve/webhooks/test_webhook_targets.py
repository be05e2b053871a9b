"""What webhooks may be sent to: every address of a host is checked, and the checked one is connected to."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable, Sequence

import httpcore
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sapwood.errors import ArgumentError
from sapwood.serve.webhooks.target_address import (
    Address,
    SystemResolver,
    TargetBackend,
    TargetPolicy,
    check_target,
    classify,
)

PUBLIC = "93.184.215.14"
_ALSO_REFUSED = [
    ipaddress.IPv4Network(each)
    for each in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "224.0.0.0/4")
]
"""refused, though Python considers some of them global"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Names:
    """A resolver with a table of names; of several answers, each is given once, and the last one again."""

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self.names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        answers = self.names.get(host)
        if answers is None:
            raise OSError("unknown")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ipaddress.ip_address(each) for each in answer]


class Connections(httpcore.AsyncNetworkBackend):
    """Records the addresses that connections are made to; those that are listed do not answer."""

    def __init__(self, dead: Iterable[str] = ()) -> None:
        self.made: list[tuple[str, int]] = []
        self.shares: list[float | None] = []
        self.dead = set(dead)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: object = None,
    ) -> httpcore.AsyncNetworkStream:
        self.made.append((host, port))
        self.shares.append(timeout)
        if host in self.dead:
            raise httpcore.ConnectTimeout
        return httpcore.AsyncMockStream([])


def is_allowed(policy: TargetPolicy, address: str, host: str = "host.example") -> bool:
    try:
        policy.check(host, [ipaddress.ip_address(address)])
    except ArgumentError:
        return False
    return True


# -- addresses -------------------------------------------------------------------------------------------


@given(st.ip_addresses(v=4))
@example(ipaddress.IPv4Address("100.64.0.1"))
@example(ipaddress.IPv4Address("192.0.0.9"))
@example(ipaddress.IPv4Address("255.255.255.255"))
def test_ipv4_addresses_are_public_as_python_says(address: ipaddress.IPv4Address) -> None:
    expected = address.is_global and not any(address in network for network in _ALSO_REFUSED)
    assert (classify(address) == "public") == expected


@given(st.ip_addresses(v=6))
@example(ipaddress.IPv6Address("fec0::1"))
@example(ipaddress.IPv6Address("2001::1"))
@example(ipaddress.IPv6Address("::127.0.0.1"))
def test_no_ipv6_address_is_public_that_python_knows_not_to_be(address: ipaddress.IPv6Address) -> None:
    special = not address.is_global or address.is_multicast or address.is_site_local or address.is_reserved
    if special and address.ipv4_mapped is None and address not in ipaddress.IPv6Network("64:ff9b::/96"):
        assert classify(address) != "public"


@given(st.ip_addresses(v=4))
@example(ipaddress.IPv4Address("127.0.0.1"))
@example(ipaddress.IPv4Address("169.254.169.254"))
@example(ipaddress.IPv4Address(PUBLIC))
def test_an_address_that_carries_another_is_as_that(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for carrying in (
        ipaddress.IPv6Address(0xFFFF << 32 | number),
        ipaddress.IPv6Address(0x64FF9B << 96 | number),
        ipaddress.IPv6Address(0x2002 << 112 | number << 80 | 1),
    ):
        assert classify(carrying) == classify(address)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "private"),
        ("fd12::1", "private"),
        ("169.254.169.254", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fd00:ec2::254", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("240.0.0.1", "reserved"),
        ("64:ff9b:1::a00:1", "reserved"),
        ("::ffff:0:10.0.0.1", "reserved"),
        (PUBLIC, "public"),
        ("2606:4700::1111", "public"),
    ],
)
def test_the_kinds_of_addresses(address: str, kind: str) -> None:
    assert classify(ipaddress.ip_address(address)) == kind
    assert is_allowed(TargetPolicy(), address) == (kind == "public")
    assert is_allowed(TargetPolicy(allow_private=True), address) == (
        kind in ("public", "private", "loopback")
    )
    assert is_allowed(TargetPolicy(allowed=[address.partition("%")[0]]), address.partition("%")[0])
    assert is_allowed(TargetPolicy(allowed=["Host.Example."]), address)


def test_an_allowed_network_holds_for_addresses_that_carry_one_of_it() -> None:
    policy = TargetPolicy(allowed=["10.1.0.0/16"])
    assert is_allowed(policy, "10.1.2.3")
    assert is_allowed(policy, "::ffff:10.1.2.3")
    assert not is_allowed(policy, "10.2.0.1")
    assert not is_allowed(policy, "::ffff:10.2.0.1")


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0", "", "http://host/", "*", "10.0.0.0/99"])
def test_an_allowed_target_that_makes_no_sense_is_refused(entry: str) -> None:
    with pytest.raises(ArgumentError, match="a network, an address or a host name"):
        TargetPolicy(allowed=[entry])


# -- hostile URLs ----------------------------------------------------------------------------------------

HOSTILE = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://127.0.0.1./",
    "http://127.0.0.1:8080/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://0.0.0.0/",
    "http://0/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://10.0.0.1/",
    "http://100.64.0.1/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://127.0.0.1.nip.io/",
    "http://both.example/",
    "http://１２７.0.0.1/",
    "http://127。0。0。1/",
    "http://user@93.184.215.14/",
    "http://user:password@93.184.215.14/",
    "http://93.184.215.14@127.0.0.1/",
    "http://127.0.0.1\\@93.184.215.14/",
    "http://127.0.0.1#@93.184.215.14/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_x",
    "unix:///var/run/docker.sock",
    "//93.184.215.14/",
    "http://",
    "",
]


@pytest.mark.anyio
@pytest.mark.parametrize("url", HOSTILE)
async def test_a_hostile_url_is_refused(url: str) -> None:
    names = Names(
        localhost=[["127.0.0.1", "::1"]],
        LOCALHOST=[["127.0.0.1"]],
        both_example=[[PUBLIC, "10.0.0.5"]],
    )
    names.names |= {"localhost.": [["127.0.0.1"]], "127.0.0.1.nip.io": [["127.0.0.1"]]}
    with pytest.raises(ArgumentError):
        await check_target(url, TargetPolicy(), names)


@pytest.mark.anyio
async def test_a_public_url_is_accepted() -> None:
    names = Names(hooks_example=[[PUBLIC, "2606:4700::1111"]])
    await check_target("https://hooks.example/in", TargetPolicy(), names)
    await check_target(f"https://{PUBLIC}/in", TargetPolicy(), names)
    with pytest.raises(ArgumentError, match=r"nobody\.example, is not found"):
        await check_target("https://nobody.example/in", TargetPolicy(), names)


@pytest.mark.anyio
async def test_an_error_does_not_tell_the_address_of_an_internal_name() -> None:
    with pytest.raises(ArgumentError, match="private") as caught:
        await check_target("http://db.corp/", TargetPolicy(), Names(db_corp=[["10.1.2.3"]]))
    assert "10.1.2.3" not in str(caught.value)


# -- connections -----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_connection_is_made_to_the_address_that_was_checked() -> None:
    names = Names(rebind_example=[[PUBLIC], ["127.0.0.1"]])
    connections = Connections()
    backend = TargetBackend(TargetPolicy(), names, connections)
    await backend.connect_tcp("rebind.example", 443, 1.0)
    assert connections.made == [(PUBLIC, 443)]
    assert names.asked == ["rebind.example"]
    with pytest.raises(ArgumentError):
        await backend.connect_tcp("rebind.example", 443, 1.0)
    assert connections.made == [(PUBLIC, 443)]


@pytest.mark.anyio
async def test_one_bad_address_refuses_all_of_a_host() -> None:
    connections = Connections()
    backend = TargetBackend(TargetPolicy(), Names(both_example=[[PUBLIC, "10.0.0.5"]]), connections)
    with pytest.raises(ArgumentError):
        await backend.connect_tcp("both.example", 443, 1.0)
    assert not connections.made


@pytest.mark.anyio
async def test_an_address_that_does_not_answer_leaves_time_for_the_next() -> None:
    connections = Connections(dead=["2606:4700::1111"])
    backend = TargetBackend(TargetPolicy(), Names(dual_example=[["2606:4700::1111", PUBLIC]]), connections)
    await backend.connect_tcp("dual.example", 443, 4.0)
    assert [host for host, _ in connections.made] == ["2606:4700::1111", PUBLIC]
    assert connections.shares[0] == pytest.approx(2.0, abs=0.2)


@pytest.mark.anyio
async def test_a_name_server_that_does_not_answer_is_bounded_in_time() -> None:
    async def wait(host: str, port: int) -> Sequence[Address]:
        await asyncio.Event().wait()
        return []

    backend = TargetBackend(TargetPolicy(), wait, Connections())
    with pytest.raises(httpcore.ConnectTimeout, match="not resolved within"):
        await backend.connect_tcp("slow.example", 443, 0.05)


@pytest.mark.anyio
async def test_no_connection_is_made_to_a_socket_of_the_file_system() -> None:
    with pytest.raises(httpcore.ConnectError):
        await TargetBackend(TargetPolicy(), Names(), Connections()).connect_unix_socket("/run/x.sock")


@pytest.mark.anyio
async def test_the_system_resolves_names_outside_of_the_event_loop() -> None:
    resolver = SystemResolver()
    first, second = await asyncio.gather(resolver("localhost", 80), resolver("localhost", 80))
    assert first == second
    assert {str(address) for address in first} <= {"127.0.0.1", "::1"}
    with pytest.raises(OSError):
        await resolver("name.invalid", 80)
