"""Real messages and real queries: the tables answer as the automaton does, with each plan.

The data lies beside the project, in ../shared/data; where it does not, these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sapwood.relational import Plan, RelationalMatcher
from tests.engine.message.test_hostile import BOMBS
from tests.engine.test_real_data import (
    AUCTIONS,
    INVOICES,
    ISO,
    NEWS,
    NITF_QUERIES,
    PAYMENTS,
    RECORDS,
    UBL,
    auctions,
    news,
    sampled,
)
from tests.support.oracles.relational_agreement import about, answers, automaton
from tests.support.shared_data import folder

pytestmark = pytest.mark.slow


def assert_alike(
    queries: Sequence[str], messages: Sequence[bytes], namespaces: dict[str, str] | None = None
) -> int:
    """Assert that each plan in turn matches as the automaton does; return the number of matches."""
    pairs = [(query, query) for query in dict.fromkeys(queries)]
    expected = automaton(pairs, messages, namespaces)
    with RelationalMatcher(namespaces=namespaces, plan=Plan.SHARED) as matcher:
        matcher.add_many(pairs)
        for plan in Plan:
            matcher.collect_garbage(plan)
            for message, one, other in zip(messages, answers(matcher, messages), expected, strict=True):
                assert one == other, about(plan, message, one, other)
    return sum(len(answer) for answer in expected if isinstance(answer, list))


# -- messages of all kinds -------------------------------------------------------------------------------


def test_news_with_the_queries_of_yfilters_authors() -> None:
    queries = [q for name, n in NITF_QUERIES.items() for q in sampled(folder("nitf") / name, n)]
    assert assert_alike([*queries, *NEWS], news(4)) > 200


def test_auctions() -> None:
    queries = sampled(folder("xmark") / "queries-100k.txt.gz", 500)
    assert assert_alike([*queries, *AUCTIONS], auctions(15)) > 150


def test_invoices_payments_and_records_together() -> None:
    """With namespaces. Two of them are ill-formed as published: they are refused in the same words."""
    paths = [*sorted(folder("ubl").glob("*.xml"))[::24], *sorted(folder("ubl").glob("*ublpe*"))]
    paths += sorted(folder("iso20022").glob("*.xml"))[::5]
    messages = [path.read_bytes() for path in paths]
    messages += (folder("dblp") / "records.xmll").read_bytes().splitlines()[:60]
    assert assert_alike([*INVOICES, *PAYMENTS, *RECORDS], messages, UBL | ISO) > 200


# -- hostile ones ----------------------------------------------------------------------------------------

QUERIES = [
    "//a",
    "//*[@x = 'v' or . = 'v']",
    "//a[b][c]/d",
    "//*[not(*)]",
    "count(//a/..) * 1 > 3",
    "/sane[@x = 1]",
]
SANE = b"<sane x='1'/>"


def among_neighbours(bombs: list[bytes], refused: float = 0.25) -> None:
    """Bombs in one batch with sane messages are refused as the automaton refuses them; the others match."""
    pairs = [(query, query) for query in QUERIES]
    messages = [message for bomb in bombs for message in (bomb, SANE)]
    expected = automaton(pairs, messages)
    told = sum(isinstance(answer, str) for answer in expected)
    assert told > len(bombs) * refused if refused else not told
    with RelationalMatcher() as matcher:
        matcher.add_many(pairs)
        for message, one, other in zip(messages, answers(matcher, messages), expected, strict=True):
            assert one == other, about(None, message, one, other)
        assert answers(matcher, [SANE]) == expected[1:2]


def test_entity_bombs_do_not_affect_other_messages() -> None:
    made = [bomb().encode("utf-16" if "UTF-16" in name else "utf-8") for name, bomb in BOMBS.items()]
    among_neighbours([message for message in made if len(message) < 60_000])


def test_messages_that_only_lxml_refuses_do_not_affect_others() -> None:
    """It is stricter than the reader, parses later, and with recovery."""
    declared = [b"<a xmlns:n='x y'><b/></a>", b"<r xmlns:n='%zz'><a/></r>"]
    among_neighbours([*declared, b"<a xml:id='1 2'/>"], refused=0)


def test_entity_bombs_of_other_collections_do_not_affect_other_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = sorted(path for path in folder("hostile").glob("*") if path.suffix in (".xml", ".ent", ".dtd"))
    monkeypatch.chdir(folder("hostile"))  # where the files they point at are
    among_neighbours([path.read_bytes() for path in paths])


def test_refused_messages_leave_no_names_behind() -> None:
    """The tag paths of a refused message are not stored."""
    bombs = [f"<a><{'n' * 900}{i}/><{'n' * 1_100}/></a>" for i in range(50)]
    with RelationalMatcher() as matcher:
        matcher.add_many([("a", "/a"), ("all", "//*")])
        assert all("the limit is 1,000" in str(answer) for answer in answers(matcher, bombs))
        assert matcher.connection.value("SELECT count(*) FROM tag_path") == 0
        assert list(matcher.match("<a/>")) == ["a", "all"]
