"""The worked example of the paper, table by table: subscription 5 and message 12."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from sapwood import Limits
from sapwood.engine.message.message_reader import Message
from sapwood.relational import Plan, RelationalMatcher
from sapwood.relational.executor import match_rules
from sapwood.relational.rules.comparisons import EQUAL_TEXT
from sapwood.relational.shredder import Shredder
from sapwood.relational.storage.duckdb_database import Connection
from sapwood.relational.subscription_catalog import read_plan_parameters

SUBSCRIPTION = '/a//b[.//c/d/text()="v1" and p//q/text()="v2"]/x[@y="v3"]//z/text()="v4"'
"""as the paper has it, but that in XPath a path inside brackets must not start with a slash"""
MESSAGE = (
    "<a><b><c><d>v1</d></c><p><p2><q>v2</q></p2></p>"
    '<x y="v3"><z>v4</z><z>v5</z></x></b><b><b><x y="v4"/></b></b></a>'
)
EXCHANGED = MESSAGE.replace('y="v3"', 'y="?"').replace('y="v4"', 'y="v3"').replace('y="?"', 'y="v4"')

PATHS = ["/a//b//c/d/text()", "/a//b/p//q/text()", "/a//b/x/@y", "/a//b/x//z/text()"]
TAG_PATHS = ["/a/b/c/d/text()", "/a/b/p/p2/q/text()", "/a/b/x/@y", "/a/b/x/z/text()", "/a/b/b/x/@y"]


@pytest.fixture(params=list(Plan), scope="module")
def matcher(request: pytest.FixtureRequest) -> Iterator[RelationalMatcher]:
    with RelationalMatcher(plan=request.param) as matcher:
        matcher.add("5", SUBSCRIPTION)
        yield matcher


def values(matcher: RelationalMatcher, message: str) -> pa.Table:
    return Shredder(matcher.catalog.tag_paths, Limits()).shred([Message(message)]).values


# -- what the subscription brings ------------------------------------------------------------------------


def test_linear_paths_are_cut_at_the_first_and_the_last_break(matcher: RelationalMatcher) -> None:
    rows = matcher.connection.rows("SELECT text, prefix, suffix, middle FROM linear_path ORDER BY id")
    assert rows == [
        ("/a//b//c/d/text()", "/a", "text()/d/c", "b"),
        ("/a//b/p//q/text()", "/a", "text()/q", "b/p"),
        ("/a//b/x/@y", "/a", "@y/x/b", None),
        ("/a//b/x//z/text()", "/a", "text()/z", "b/x"),
    ]


def test_branching_points_sit_at_the_steps_b_and_x(matcher: RelationalMatcher) -> None:
    rows = matcher.connection.rows(
        "SELECT p.text, b.points FROM path_branching b JOIN linear_path p ON p.id = b.path ORDER BY b.id"
    )
    both = "bp1=2&bp2=3"
    assert rows == list(zip(PATHS, ["bp1=2", "bp1=2", both, both], strict=True))


def test_the_subscription_has_its_branchings_in_order(matcher: RelationalMatcher) -> None:
    assert matcher.connection.rows("SELECT * FROM subscription_branching") == [("5", "1&2&3&4")]


@pytest.mark.parametrize("plan", [Plan.SHARED, Plan.BUCKETS])
def test_its_predicates_are_a_chain_from_0_to_the_rule(plan: Plan) -> None:
    with RelationalMatcher(plan=plan) as matcher:
        matcher.add("5", SUBSCRIPTION)
        rows = {
            pre: (path, op, text, following, final)
            for pre, path, op, text, following, final in matcher.connection.rows(
                """
                SELECT c.pre_id, p.text, c.op, c.text, c.chain_id, c.final
                FROM predicate_chain c JOIN linear_path p ON p.id = c.path"""
            )
        }
        [rule] = matcher.connection.rows("SELECT id FROM rule")
    assert len(rows) == 4
    at = 0
    for number, (path, value) in enumerate(zip(PATHS, ["v1", "v2", "v3", "v4"], strict=True), 1):
        *found, at, final = rows[at]
        assert found == [path, EQUAL_TEXT, value]
        assert final == (number == 4)
    assert at == rule[0]


def test_unrolled_its_predicates_are_side_by_side_in_one_row() -> None:
    with RelationalMatcher(plan=Plan.UNROLLED) as matcher:
        matcher.add("5", SUBSCRIPTION)
        connection = matcher.connection
        [(rule, following, *facts)] = connection.rows(
            "SELECT rule, next, fact1, fact2, fact3, fact4 FROM unrolled"
        )
        assert connection.rows("SELECT id FROM rule") == [(rule,)]
        assert following is None
        assert sorted(facts) == sorted(id for (id,) in connection.rows("SELECT id FROM fact"))
        assert connection.rows("SELECT * FROM predicate_chain") == []


# -- what the message brings -----------------------------------------------------------------------------


def test_the_message_has_six_values_on_five_tag_paths(matcher: RelationalMatcher) -> None:
    found = values(matcher, MESSAGE)
    texts = dict(matcher.connection.rows("SELECT id, text FROM tag_path"))
    rows = [
        (texts[row["tag"]], ".".join(map(str, row["nodes"])), row["text"])
        for row in sorted(found.to_pylist(), key=lambda row: row["nodes"])
    ]
    assert rows == [
        ("/a/b/c/d/text()", "1.2.3.4.5", "v1"),
        ("/a/b/p/p2/q/text()", "1.2.6.7.8.9", "v2"),
        ("/a/b/x/@y", "1.2.10.11", "v3"),
        ("/a/b/x/z/text()", "1.2.10.12.13", "v4"),
        ("/a/b/x/z/text()", "1.2.10.14.15", "v5"),
        ("/a/b/b/x/@y", "1.16.17.18.19", "v4"),
    ]


def test_tag_paths_and_which_paths_match_them(matcher: RelationalMatcher) -> None:
    values(matcher, MESSAGE)
    rows = matcher.connection.rows("SELECT text, reversed FROM tag_path")
    assert sorted(rows) == sorted(
        [
            ("/a/b/c/d/text()", "text()/d/c/b/a"),
            ("/a/b/p/p2/q/text()", "text()/q/p2/p/b/a"),  # the paper's figure drops the q
            ("/a/b/x/@y", "@y/x/b/a"),
            ("/a/b/x/z/text()", "text()/z/x/b/a"),
            ("/a/b/b/x/@y", "@y/x/b/b/a"),
        ]
    )
    matches = matcher.connection.rows(
        """
        SELECT t.text, p.text
        FROM path_match m JOIN tag_path t ON t.id = m.tag JOIN linear_path p ON p.id = m.path"""
    )
    assert sorted(matches) == sorted(
        [
            ("/a/b/c/d/text()", "/a//b//c/d/text()"),
            ("/a/b/p/p2/q/text()", "/a//b/p//q/text()"),
            ("/a/b/x/@y", "/a//b/x/@y"),
            ("/a/b/x/z/text()", "/a//b/x//z/text()"),
            ("/a/b/b/x/@y", "/a//b/x/@y"),
        ]
    )


def test_where_branching_points_lie_on_tag_paths() -> None:
    """Of the first b of `/a/b/b/x/@y`, x is no child: the paper's {2,4} is a slip."""
    with RelationalMatcher() as matcher:
        matcher.add("5", SUBSCRIPTION)
        matcher.add("with v4", SUBSCRIPTION.replace("v3", "v4"))  # else nobody asks about the second x
        list(matcher.match(MESSAGE))
        places = _places(matcher.connection)
    assert places == [
        ("/a/b/b/x/@y", "/a//b/x/@y", [3, 4]),
        ("/a/b/c/d/text()", "/a//b//c/d/text()", [2]),
        ("/a/b/p/p2/q/text()", "/a//b/p//q/text()", [2]),
        ("/a/b/x/@y", "/a//b/x/@y", [2, 3]),
        ("/a/b/x/z/text()", "/a//b/x//z/text()", [2, 3]),
    ]


def test_both_position_vectors_where_both_are_right() -> None:
    with RelationalMatcher() as matcher:
        matcher.add("s", "/a//b[w]//x[w]/@y = 1")
        list(matcher.match("<a><b><w/><b><x y='1'><w/></x></b></b></a>"))
        assert ("/a/b/b/x/@y", "/a//b//x/@y", [2, 4]) in _places(matcher.connection)
        assert ("/a/b/b/x/@y", "/a//b//x/@y", [3, 4]) in _places(matcher.connection)


def _places(connection: Connection) -> list[tuple[str, str, list[int]]]:
    rows = connection.rows(
        """
        SELECT t.text, p.text, b.positions
        FROM tag_branching b JOIN tag_path t ON t.id = b.tag
             JOIN path_branching g ON g.id = b.branching JOIN linear_path p ON p.id = g.path"""
    )
    return sorted((tag, path, list(positions)) for tag, path, positions in rows)


# -- the match -------------------------------------------------------------------------------------------


def test_one_notification(matcher: RelationalMatcher) -> None:
    assert list(matcher.match(MESSAGE)) == ["5"]
    assert list(matcher.match(EXCHANGED)) == []
    assert [list(matches) for matches in matcher.match_many([EXCHANGED, MESSAGE, "<a/>", MESSAGE])] == [
        *([], ["5"]),
        *([], ["5"]),
    ]


def test_branches_meet_at_the_nodes_2_and_10(matcher: RelationalMatcher) -> None:
    connection = step_by_step(matcher, [MESSAGE])
    assert connection.rows("SELECT msg, part, v1, v2 FROM point2") == [(0, -2, 2, 10)]
    assert connection.rows("SELECT msg, part, v1 FROM point1") == [(0, -1, 2)]
    assert connection.rows("SELECT msg FROM satisfied") == [(0,)]


def test_exchanged_they_do_not_meet(matcher: RelationalMatcher) -> None:
    """All predicates hold: it is a candidate. But c and p hang from one b, and the right x from another."""
    connection = step_by_step(matcher, [EXCHANGED])
    assert connection.rows("SELECT msg FROM candidate") == [(0,)]
    assert connection.rows("SELECT * FROM point2") == []
    assert connection.rows("SELECT * FROM satisfied") == []


def step_by_step(matcher: RelationalMatcher, messages: list[str]) -> Connection:
    """A connection with the temporary tables of a batch."""
    tag_paths = matcher.catalog.tag_paths
    batch = Shredder(tag_paths, Limits()).shred([Message(message) for message in messages])
    connection = matcher.connection
    parameters = read_plan_parameters(connection)
    locate = tag_paths.locate_branching_nodes
    match_rules(connection, batch, parameters, locate, range(len(messages)))
    return connection
