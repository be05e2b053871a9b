"""Real messages of several schemas, made into what Saxon makes of them.

The data lies beside the project, in ../shared/data; where it does not, these tests are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pytest

from sapwood import Broker, MessageError
from sapwood.workload import TransformationGenerator, load_dtd
from tests.support.oracles import saxon
from tests.support.shared_data import folder

pytest.importorskip("saxonche")

pytestmark = pytest.mark.slow


def compare(messages: Iterable[bytes], queries: list[str], namespaces: Mapping[str, str]) -> int:
    """Asserts that one broker with all queries makes what Saxon makes, and tells of how many results."""
    results = 0
    with Broker(namespaces) as broker:
        broker.subscribe_many(enumerate(queries))
        for message in messages:
            try:
                made = {d.subscription: d.body for d in broker.publish(message)}
            except MessageError:
                continue
            for number, query in enumerate(queries):
                wanted = saxon.answer(query, message, namespaces)
                if number in made:
                    assert saxon.canonical(made[number]) == saxon.canonical(wanted), query
                    results += 1
                else:
                    assert wanted == "", query
    return results


def test_news() -> None:
    data = folder("nitf")
    dtd = load_dtd(data / "nitf-2-5.dtd", root="nitf")
    made_up = TransformationGenerator(dtd, seed=5, binding_depth=2, values=20).take(2_000)
    queries = [re.sub(r"=(\d+)", r"='\1'", query) for query in made_up]  # for XQuery, text is no number
    messages = [path.read_bytes() for path in sorted((data / "docs").iterdir())[:5]]
    hits = Broker()
    hits.subscribe_many(enumerate(queries))
    found = {d.subscription for message in messages for d in hits.publish(message)}
    chosen = [query for number, query in enumerate(queries) if number in found][:60]
    written = [
        "for $n in /nitf, $p in $n//p where $n/head return <para n='{count($p/*)}'>{$p/@*}{$p/node()}</para>",
        "for $n in //body where not($n//table) or $n//p return <b>{$n//hl1}{string(($n//hl1)[1])}</b>",
        "for $m in //meta where starts-with($m/@name, '1') return <m>{$m/@content}</m>",
    ]
    assert compare(messages, chosen + written, {}) > 60


def test_invoices() -> None:
    namespaces = {
        "cac": "urn:oasis:names:specification:ubl:schema:xsd:CommonAggregateComponents-2",
        "cbc": "urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2",
        "i": "urn:oasis:names:specification:ubl:schema:xsd:Invoice-2",
    }
    queries = [
        "for $l in //cac:InvoiceLine where $l/cbc:LineExtensionAmount > 100 "
        "return <line id='{$l/cbc:ID}'>{$l/cac:Item}{$l/cbc:LineExtensionAmount/@currencyID/..}</line>",
        "for $p in //cac:Party return <party>{$p/cac:PartyName}</party>",
        "for $i in /i:Invoice let $t := $i/cac:LegalMonetaryTotal "
        "return <cbc:total lines='{count($i/cac:InvoiceLine)}'>{$t/cbc:PayableAmount}</cbc:total>",
        "for $d in /* return <copy xmlns='urn:other'>{$d/@*}{$d/cbc:ID}</copy>",
    ]
    messages = [path.read_bytes() for path in sorted(folder("ubl").rglob("*.xml"))[:25]]
    assert compare(messages, queries, namespaces) > 25


def test_payments() -> None:
    messages = [path.read_bytes() for path in sorted(folder("iso20022").glob("*.xml"))]
    queries = [
        "for $n in //*[local-name() = 'Ntry'] return <entry>{$n/*[local-name() = 'Amt']}</entry>",
        "for $a in //*[@Ccy = 'EUR' or @Ccy = 'CHF'] return <amt c='{$a/@Ccy}'>{string($a)}</amt>",
        "for $d in /* return <names>{count($d//*)}</names>",
    ]
    assert compare(messages, queries, {}) > 30
