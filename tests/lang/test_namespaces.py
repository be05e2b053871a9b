"""The prefixes that may be declared."""

from __future__ import annotations

import pytest

from sapwood import Broker, Matcher
from sapwood.errors import ArgumentError
from sapwood.relational import RelationalMatcher


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        ("1x", "'1x' cannot be a prefix: it is not an XML name without a colon"),
        ("a:b", "cannot be a prefix"),
        ("a b", "cannot be a prefix"),
        ("xmlns", "'xmlns' is reserved for declarations in XML; choose another prefix"),
        ("xml", "'xml' always stands for http://www.w3.org/XML/1998/namespace, not for 'urn:x'"),
    ],
)
def test_prefixes_that_xml_forbids_are_refused(prefix: str, reason: str) -> None:
    with RelationalMatcher() as tables:
        for declare in (Matcher, Broker, Matcher().declare, tables.declare):
            with pytest.raises(ArgumentError) as caught:
                declare({prefix: "urn:x"})
            assert reason in str(caught.value)
            assert "\n" not in str(caught.value)


def test_prefixes_and_namespaces_are_strings() -> None:
    for namespaces in ({1: "urn:x"}, {"x": 1}):
        with pytest.raises(ArgumentError, match="a prefix and a namespace must be strings: "):
            Matcher(namespaces)  # type: ignore[arg-type]


def test_the_prefix_xml_may_be_declared_with_its_own_namespace() -> None:
    matcher = Matcher({"xml": "http://www.w3.org/XML/1998/namespace"})
    matcher.add("native", "//a[@xml:lang = 'en']")
    matcher.add("fallback", "//a[string-length(@xml:lang) = 2]")
    assert list(matcher.match("<a xml:lang='en'/>")) == ["native", "fallback"]
