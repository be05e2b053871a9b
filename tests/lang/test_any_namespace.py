"""Names that match in any namespace: answers are lxml's on the same document without namespaces."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

from sapwood import Broker, Matcher, QueryError, Tuning
from sapwood.errors import StoreError
from sapwood.store import SubscriptionStore
from tests.support.oracles import lxml_oracle

pytestmark = pytest.mark.slow

PAYMENT = '<Document xmlns="urn:iso:pacs.008.001.{}"><Amt Ccy="EUR">5</Amt></Document>'
TUNINGS = [Tuning(), Tuning(join_bundles=False), Tuning(prefilter=False), Tuning(cache=0)]


def without_namespaces(document: str) -> Any:
    """The document with local names only."""
    tree = etree.fromstring(document.encode()).getroottree()
    for element in tree.iter("*"):
        element.tag = etree.QName(element).localname
        attributes = [(etree.QName(name).localname, value) for name, value in element.attrib.items()]
        element.attrib.clear()
        element.attrib.update(attributes)
    return tree


def random_cases(rng: random.Random) -> tuple[list[str], list[str]]:
    """Queries without prefixes, and documents with them, in which no attribute is there twice."""
    queries: list[str] = []
    while len(queries) < 30:
        query = lxml_oracle.random_query(rng, native=rng.random() < 0.5)
        if "name" not in query and "p:*" not in query:
            queries.append(re.sub(r"\b[pq]:", "", query.replace("p:x", "p:w")))
    return queries, [lxml_oracle.random_document(rng, budget=25).replace(" p:x=", " p:w=") for _ in range(8)]


def test_as_if_there_were_no_namespaces() -> None:
    tally = [0, 0]

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32))
    def compare(seed: int) -> None:
        rng = random.Random(seed)
        queries, documents = random_cases(rng)
        with Matcher("any", tuning=rng.choice(TUNINGS)) as matcher:
            matcher.add_many(enumerate(queries))
            unpacked = Matcher.unpack(matcher.pack())
            for document in documents:
                tree = without_namespaces(document)
                wanted = [i for i, query in enumerate(queries) if lxml_oracle.matches(tree, query)]
                assert list(matcher.match(document)) == wanted, document
                assert sorted(matcher.select(document)) == wanted, document  # type: ignore[type-var]
                assert list(unpacked.match(document)) == wanted
                tally[0] += len(queries)
                tally[1] += len(wanted)
            unpacked.close()

    compare()
    assert tally[0] >= 9_000 and tally[1] >= tally[0] * 0.05


@pytest.mark.parametrize(
    "query",
    [
        *("//*:Amt", "/*:Document/*:Amt[@Ccy = 'EUR']", "//*:Amt[. > 4]", "//@*:Ccy", "//*:Amt[@*:Ccy]"),
        *("//*[self::*:Amt]", "//*:Amt[position() mod 2 = 1]", "*:Document", "count(//*:Amt) * 1 = 1"),
        *("//child::*:Amt/parent::*:Document", "2 * //*:Amt = 10", "//*:Amt * 2 = 10", "//*:Amt | //*:No"),
    ],
)
def test_one_name_in_any_namespace(query: str) -> None:
    with Matcher() as matcher:
        matcher.add("s", query)
        for version in ("08", "09"):
            assert "s" in matcher.match(PAYMENT.format(version))
        assert "s" in matcher.match("<Document><Amt Ccy='EUR'>5</Amt></Document>")
        assert "s" not in matcher.match("<Documents><Amnt ccy='EUR'>4</Amnt></Documents>")


def test_prefixes_go_with_it() -> None:
    matcher = Matcher({"*": "any", "old": "urn:iso:pacs.008.001.08"})
    matcher.add("any", "/Document/Amt")
    matcher.add("old", "/old:Document/old:Amt")
    matcher.add("mixed", "/old:Document/Amt[@Ccy]")
    assert list(matcher.match(PAYMENT.format("08"))) == ["any", "old", "mixed"]
    assert list(matcher.match(PAYMENT.format("09"))) == ["any"]


def test_in_transformations_and_joins() -> None:
    with Broker("any") as broker:
        broker.subscribe("made", "for $a in //Amt where $a/@Ccy = 'EUR' return <a>{$a/text()}</a>")
        broker.subscribe("refined", "for $a in //Amt[string-length(.) = 1] return <a>{$a/@Ccy}</a>")
        broker.subscribe("joined", "s//Document[Amt->a] FOLLOWED BY{a = b, 1 day} s//Document[Amt->b]")
        first = broker.publish(PAYMENT.format("08"), stream="s", time=0)
        assert {d.subscription: d.body for d in first} == {"made": b"<a>5</a>", "refined": b'<a Ccy="EUR"/>'}
        second = broker.publish(PAYMENT.format("09"), stream="s", time=1)
        assert "joined" in {d.subscription for d in second}


def test_in_tables() -> None:
    pytest.importorskip("duckdb")
    from sapwood.relational import RelationalMatcher

    rng = random.Random(5)
    queries, documents = random_cases(rng)
    with RelationalMatcher(namespaces="any") as matcher:
        matcher.add_many((str(i), query) for i, query in enumerate(queries))
        for document, found in zip(documents, matcher.match_many(documents), strict=True):
            tree = without_namespaces(document)
            assert set(found) == {str(i) for i, q in enumerate(queries) if lxml_oracle.matches(tree, q)}
        with pytest.raises(ValueError, match="only be declared"):
            matcher.declare({"*": "urn:x"})


def test_the_meaning_of_names_does_not_change_under_queries(tmp_path: Path) -> None:
    matcher = Matcher()
    matcher.add("s", "/a")
    with pytest.raises(ValueError, match="before the first query"):
        matcher.declare("any")
    with SubscriptionStore(str(tmp_path / "store.db")) as store:
        store.add("s", "/a")
        with pytest.raises(StoreError, match="before the first query"):
            store.declare("any")
    with SubscriptionStore(str(tmp_path / "other.db")) as store:
        store.declare("any")
        store.declare({"p": "urn:p"})
        store.add("s", "/a/p:b")
        assert store.namespaces == {"*": "any", "p": "urn:p"}


@pytest.mark.parametrize("namespaces", ["all", {"*": "urn:x"}])
def test_other_values_of_namespaces_are_refused(namespaces: Any) -> None:
    with pytest.raises(ValueError, match="any"):
        Matcher(namespaces)


@pytest.mark.parametrize("query", ["//*:", "//*:*", "//*:1", "//a:*:b", "//* :a"])
def test_half_a_name(query: str) -> None:
    with pytest.raises(QueryError):
        Matcher({"a": "urn:a"}).add("s", query)
