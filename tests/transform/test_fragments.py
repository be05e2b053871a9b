"""Copies of elements declare the namespaces that they use, and no others."""

from __future__ import annotations

import pytest

from sapwood import Broker

CASES = {
    "a default that is not used": ('<a xmlns="urn:d"><p:b xmlns:p="urn:p"/></a>', '<p:b xmlns:p="urn:p"/>'),
    "an attribute, which has none": (
        '<a xmlns="urn:d"><p:b xmlns:p="urn:p" k="1"/></a>',
        '<p:b xmlns:p="urn:p" k="1"/>',
    ),
    "a default that is used": ('<a xmlns="urn:d"><b><c/></b></a>', '<b xmlns="urn:d"><c/></b>'),
    "one that is used inside": (
        '<a xmlns="urn:d"><p:b xmlns:p="urn:p"><c/></p:b></a>',
        '<p:b xmlns="urn:d" xmlns:p="urn:p"><c/></p:b>',
    ),
    "one that is declared inside": (
        '<a xmlns="urn:d"><p:b xmlns:p="urn:p"><c xmlns="urn:d"/></p:b></a>',
        '<p:b xmlns:p="urn:p"><c xmlns="urn:d"/></p:b>',
    ),
    "one that is taken back inside": (
        '<a xmlns="urn:d"><p:b xmlns:p="urn:p"><c xmlns=""><e/></c></p:b></a>',
        '<p:b xmlns:p="urn:p"><c xmlns=""><e/></c></p:b>',
    ),
    "a prefix for the same namespace": (
        '<a xmlns="urn:d" xmlns:p="urn:d"><p:b/></a>',
        '<p:b xmlns:p="urn:d"/>',
    ),
    "a prefix that is not used": ('<a xmlns:q="urn:q"><p:b xmlns:p="urn:p"/></a>', '<p:b xmlns:p="urn:p"/>'),
    "a prefix in the content": (
        '<a xmlns:q="urn:q" xmlns="urn:d"><p:b xmlns:p="urn:p" type="q:t"/></a>',
        '<p:b xmlns:q="urn:q" xmlns:p="urn:p" type="q:t"/>',
    ),
    "text that looks like a tag": (
        '<a xmlns="urn:d"><p:b xmlns:p="urn:p"><!-- <c/> --></p:b></a>',
        '<p:b xmlns:p="urn:p"><!-- <c/> --></p:b>',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("message", "copy"), CASES.values(), ids=CASES.keys())
def test_a_copy_declares_what_it_uses(message: str, copy: str) -> None:
    broker = Broker()
    broker.subscribe("q", "for $x in /*/* return <r>{$x}</r>")
    [delivery] = broker.publish(message)
    assert delivery.body == f"<r>{copy}</r>".encode()


@pytest.mark.parametrize(
    ("message", "copy"),
    [
        ("<a><b/></a>", '<b xmlns=""/>'),
        ('<a><p:b xmlns:p="urn:p"/></a>', '<p:b xmlns:p="urn:p"/>'),
        ('<a><p:b xmlns:p="urn:p"><c/></p:b></a>', '<p:b xmlns="" xmlns:p="urn:p"><c/></p:b>'),
        ('<a xmlns="urn:r"><b/></a>', "<b/>"),
    ],
)
def test_a_copy_in_a_default_namespace_leaves_it_only_if_it_must(message: str, copy: str) -> None:
    broker = Broker()
    broker.subscribe("q", 'for $x in /*/* return <r xmlns="urn:r">{$x}</r>')
    [delivery] = broker.publish(message)
    assert delivery.body == f'<r xmlns="urn:r">{copy}</r>'.encode()
