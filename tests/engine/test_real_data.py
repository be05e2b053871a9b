"""Real messages and real queries of several schemas: `match` and `select` answer as lxml does.

The data lies beside the project, in ../shared/data; where it does not, these tests are skipped.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from lxml import etree

from sapwood import Matcher, MessageError
from tests.support.oracles import lxml_oracle
from tests.support.shared_data import folder

pytestmark = pytest.mark.slow


def sampled(path: Path, n: int) -> list[str]:
    """So many lines of a file, the same every time."""
    with gzip.open(path, "rt") as file:
        lines = file.read().split("\n")
    return random.Random(path.name).sample([line for line in lines if line.strip()], n)


class Compared:
    """How many answers were compared, and how many of them were positive."""

    def __init__(self) -> None:
        self.answers = self.positive = self.nodes = 0


def compare(
    messages: Iterable[bytes], queries: Iterable[str], namespaces: dict[str, str] | None = None
) -> Compared:
    """Asserts that all queries, in one matcher, get lxml's answers and nodes for every message."""
    namespaces = namespaces or {}
    queries = list(queries)
    truths = [lxml_oracle.compiled(f"boolean({query})", namespaces) for query in queries]
    compared = Compared()
    with Matcher(namespaces) as matcher:
        matcher.add_many(enumerate(queries))
        for message in messages:
            tree = lxml_oracle.parse(message)
            wanted = [i for i, truth in enumerate(truths) if truth(tree)]
            assert list(matcher.match(message)) == wanted
            selected = matcher.select(message)
            assert list(selected) == wanted
            for i in wanted:
                found = [(node.index, node.kind, node.value) for node in selected[i]]
                if selected[i][0].kind not in ("boolean", "number", "string"):
                    assert found == lxml_oracle.selected(tree, queries[i], namespaces), queries[i]
                compared.nodes += len(found)
            compared.answers += len(queries)
            compared.positive += len(wanted)
    return compared


# -- news ------------------------------------------------------------------------------------------------

NITF_QUERIES = {
    "queries-153928-distinct.txt.gz": 600,
    "queries-500000.txt.gz": 400,
    "queries-pred1-100k.txt.gz": 600,
    "queries-nested1-50k.txt.gz": 600,
}


def news(n: int) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder("nitf") / "docs").iterdir())[:n]]


def test_news_with_the_queries_of_yfilters_authors() -> None:
    queries = [q for name, n in NITF_QUERIES.items() for q in sampled(folder("nitf") / name, n)]
    compared = compare(news(30), queries)
    assert compared.answers == 30 * 2_200
    assert compared.positive > 1_200


NEWS = """
/nitf/head/tobject[@tobject.type > 10]/tobject.subject
//tobject.subject[@tobject.subject.type = 14]
/nitf[head/docdata/date.issue/@norm < 10]//byline
//body.content/block[p][media]
//block/p[2]
//block/*[last()]
//p[not(ancestor::block)]
//media[@media-type]/media-metadata[@name = @value]
//*[@id = //@style]
//p[count(*) > 2]
//*[contains(., '15') and not(*)]
//hedline/hl1 | //hedline/hl2[@id < 5]
count(//p) > count(//block)
//body.head[dateline/location or byline/person]
sum(//@id) > 100
//note/body.content//p/text()[. > 10]
//*[starts-with(local-name(), 'body.')]
//q/preceding-sibling::*
string(//hl1) = string(//title)
/nitf/@change.date[. = 1]
//tr/td[position() mod 2 = 0]
//*[@id][@style][not(@class)]
""".strip().split("\n")


def test_news_with_all_kinds_of_queries() -> None:
    assert compare(news(100), NEWS).positive > 400


def test_slices_of_news_are_the_elements() -> None:
    with Matcher() as matcher:
        matcher.add("q", "//*[@id]")
        for message in news(3):
            elements = lxml_oracle.compiled("//*[@id]")(lxml_oracle.parse(message))
            found = matcher.select(message)["q"]
            assert isinstance(elements, list)
            assert len(found) == len(elements) > 0
            for node, element in zip(found, elements, strict=True):
                assert etree.canonicalize(node.xml) == etree.canonicalize(element)


# -- auctions --------------------------------------------------------------------------------------------

AUCTIONS = """
//item[@id = 'item3']/name
//item[contains(description, 'gold')]/name
//open_auction[bidder[2]]/current
//open_auction[initial > 50 and bidder/increase >= 10]
//closed_auction[price >= 40]/price
//person[profile/@income > 50000]/name
//person[not(homepage)][creditcard]
//person[watches/watch[2]]
//bidder[position() = last()]/increase
//item/mailbox/mail[from and to]/date
//listitem//keyword[emph]
//*[text()[2]]
//open_auction[bidder/personref/@person = seller/@person]
count(//bidder) > 2
//person[starts-with(name, 'S')]/emailaddress
//keyword[not(../../..//bold)]
//*[@category]
//item[location = 'United States'][quantity > 1]
//annotation[happiness < 5]
//parlist/listitem[1]//text()
""".strip().split("\n")


def auctions(n: int) -> list[bytes]:
    with gzip.open(folder("xmark") / "stream.xmll.gz") as file:
        return random.Random(1).sample(file.read().splitlines(), n)


def test_auctions_with_generated_queries() -> None:
    compared = compare(auctions(40), sampled(folder("xmark") / "queries-100k.txt.gz", 600))
    assert compared.positive > 500


def test_auctions_with_all_kinds_of_queries() -> None:
    assert compare(auctions(120), AUCTIONS).positive > 250


def test_all_auctions_in_one_large_message() -> None:
    compared = compare([(folder("xmark") / "xmark-0.01.xml").read_bytes()], AUCTIONS)
    assert compared.positive > 15
    assert compared.nodes > 2_000


# -- invoices and notices: namespaces --------------------------------------------------------------------

UBL = {
    "inv": "urn:oasis:names:specification:ubl:schema:xsd:Invoice-2",
    "can": "urn:oasis:names:specification:ubl:schema:xsd:ContractAwardNotice-2",
    "cac": "urn:oasis:names:specification:ubl:schema:xsd:CommonAggregateComponents-2",
    "cbc": "urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2",
    "ext": "urn:oasis:names:specification:ubl:schema:xsd:CommonExtensionComponents-2",
}
INVOICES = """
/inv:Invoice/cac:InvoiceLine[cbc:LineExtensionAmount > 1000]
/inv:Invoice[cbc:DocumentCurrencyCode = 'EUR']//cbc:PayableAmount
/inv:Invoice/cac:InvoiceLine[2]/cac:Item/cbc:Name
//cbc:PayableAmount[@currencyID != 'EUR']
//cac:Party[cac:PartyName/cbc:Name][cac:PostalAddress/cac:Country/cbc:IdentificationCode = 'AT']
//cac:TaxSubtotal[cac:TaxCategory/cbc:Percent = 20]/cbc:TaxAmount
//*[local-name() = 'ID']
//*[local-name() = 'Percent'][. >= 10]
/*[namespace-uri() = 'urn:oasis:names:specification:ubl:schema:xsd:Invoice-2']
/*[local-name() = 'ContractAwardNotice']//cbc:NoticeTypeCode
/can:*//cac:TenderResult[cbc:TenderResultCode]
//cac:*[cbc:ID][cbc:Name]
//@schemeID[. = 'GLN']
//cbc:*/@currencyID
//cbc:IssueDate[starts-with(., '20')]
//cbc:ID[contains(@schemeName, 'NIT')]
//cac:InvoiceLine[cac:Price/cbc:PriceAmount * cbc:InvoicedQuantity > 500]
//ext:UBLExtension[last()]
//*[name() = 'cbc:Note']
//Invoice
//cac:AccountingSupplierParty[.//cbc:Telephone or .//cbc:ElectronicMail]
count(//cac:InvoiceLine) > 3
//*[@languageID = 'en' or @languageID = 'EN']
//cac:DeliveryTerms | //cac:PaymentTerms[cbc:Note]
""".strip().split("\n")
ILL_FORMED = {
    "ph-ublpe_src_test_resources_external_test-ublpe20_perception_EjemploPercepcion.xml",
    "ph-ublpe_src_test_resources_external_test-ublpe21_20100454523-01-F001-4355.xml",
}


def test_invoices_and_notices_with_their_namespaces() -> None:
    paths = sorted(path for path in folder("ubl").glob("*.xml") if path.name not in ILL_FORMED)
    compared = compare((path.read_bytes() for path in paths), INVOICES, UBL)
    assert compared.answers == 200 * len(INVOICES)
    assert compared.positive > 1_000


def test_ill_formed_invoices_are_refused_and_the_rest_go_on() -> None:
    matcher = Matcher(UBL)
    matcher.add_many(enumerate(INVOICES[:6]))
    refused, matched = set(), 0
    for path in sorted(folder("ubl").glob("*.xml")):
        try:
            matched += bool(matcher.match(path.read_bytes()))
        except MessageError as error:
            refused.add(path.name)
            assert error.line is not None
            assert error.column is not None
    assert refused == ILL_FORMED
    assert matched > 30


# -- payments: many namespaces for one vocabulary --------------------------------------------------------

ISO = {
    "c": "urn:iso:std:iso:20022:tech:xsd:camt.054.001.04",
    "p": "urn:iso:std:iso:20022:tech:xsd:pain.001.001.03",
}
PAYMENTS = """
/c:Document/c:BkToCstmrDbtCdtNtfctn/c:Ntfctn/c:Ntry[c:Amt > 100]
//c:Ntry[c:CdtDbtInd = 'CRDT']//c:TxDtls/c:Amt
//c:Amt[@Ccy = 'CHF']
//p:CdtTrfTxInf[p:Amt/p:InstdAmt/@Ccy = 'EUR']
//p:PmtInf[count(p:CdtTrfTxInf) > 1]
//*[local-name() = 'Document']
//*[local-name() = 'IBAN'][starts-with(., 'CH')]
//*[local-name() = 'Ntry'][*[local-name() = 'Amt'] > 500]
//*[local-name() = 'Amt'][@Ccy != 'EUR']
/*[starts-with(namespace-uri(), 'urn:iso:std:iso:20022')]
//*[local-name() = 'CdtDbtInd'][. = 'DBIT']/..
/Document
//c:*[not(*)][. = 'BOOK']
//*[local-name() = 'Nm' and string-length(.) > 20]
//@Ccy
""".strip().split("\n")


def test_payments_of_many_versions() -> None:
    compared = compare(
        (path.read_bytes() for path in sorted(folder("iso20022").glob("*.xml"))), PAYMENTS, ISO
    )
    assert compared.answers == 36 * len(PAYMENTS)
    assert compared.positive > 150


# -- plays -----------------------------------------------------------------------------------------------

PLAYS = """
/PLAY/ACT[3]/SCENE[1]/TITLE
//SPEECH[SPEAKER = 'HAMLET']/LINE[1]
//SPEECH[count(SPEAKER) > 1]
//LINE[contains(., 'sleep')]
//SCENE[.//STAGEDIR[contains(., 'Exeunt')]]/TITLE
//SPEECH[SPEAKER = 'OPHELIA'][LINE[last() > 5]]
//STAGEDIR[../LINE]
//PERSONA[starts-with(., 'H')]
//PGROUP[GRPDESCR]/PERSONA[last()]
//LINE/STAGEDIR
//SPEECH[not(LINE[2])]/SPEAKER
//ACT[SCENE[5]]/TITLE
//EPILOGUE | //PROLOGUE
//SPEECH[position() = last()]/LINE[last()]
//LINE[text() = 'To be, or not to be: that is the question:']
//SCENE[count(SPEECH) > 100]
//SPEAKER[. = ../preceding-sibling::SPEECH[1]/SPEAKER]
""".strip().split("\n")


def test_plays() -> None:
    compared = compare((path.read_bytes() for path in sorted(folder("shakespeare").glob("*.xml"))), PLAYS)
    assert compared.positive > 80
    assert compared.nodes > 3_000


# -- records ---------------------------------------------------------------------------------------------

RECORDS = """
/dblp/article[year > 2000]/title
/dblp/*[author[3]]
/dblp/*[@key = 'books/mitp/SaakeSH2008']
//author[contains(., 'Müller')]
//*[starts-with(@key, 'conf/')]/booktitle
/dblp/*[year >= 1995 and year < 2000][ee]
//title[.//sup or .//i]
//*[@mdate > '2008']
//pages[contains(., '-')]
//author[. = 'Gunter Saake']/following-sibling::author
/dblp/*[not(author)][editor]
//title[string-length(.) > 150]
/dblp/*[number(year) mod 2 = 0]/year
//series/@href | //url
count(//author) = 2
""".strip().split("\n")


def test_records() -> None:
    with (folder("dblp") / "records.xmll").open("rb") as file:
        records = file.read().splitlines()
    compared = compare(records, RECORDS)
    assert compared.positive > 1_000
