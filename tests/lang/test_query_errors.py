"""Errors of queries that do not compile: reason, position and hint."""

from __future__ import annotations

import pickle

import pytest

from sapwood import Broker, Matcher, QueryError, SapwoodError

NAMESPACES = {"news": "urn:news", "fin": "urn:fin"}


def refused(query: str, namespaces: dict[str, str] | None = None) -> QueryError:
    with pytest.raises(QueryError) as caught:
        Matcher(namespaces).add("q", query)
    return caught.value


def pointed_at(error: QueryError) -> str:
    """What stands in the shown query from the caret on."""
    shown, caret = str(error).split("\n")[1:3]
    assert caret.strip() == "^"
    return shown[caret.index("^") :]


@pytest.mark.parametrize(
    ("query", "reason", "at", "hint"),
    [
        # names that nobody declared
        ("/a/p:b", "prefix 'p' is not declared", "p:b", "namespaces={'p':"),
        ("/a[@p:x = 1]", "prefix 'p' is not declared", "p:x = 1]", "namespaces={'p':"),
        ("//p:*", "prefix 'p' is not declared", "p:*", "namespaces={'p':"),
        ("/a[$price > 3]", "variable '$price'", "$price > 3]", "the value itself"),
        ("/{urn:x}a", "unexpected character '{'", "{urn:x}a", "prefix"),
        # strings
        ("/a[@x='1]/b", "never closed", "'1]/b", "add the missing '"),
        ('/a[@x="1]/b', "never closed", '"1]/b', 'add the missing "'),
        ("/a[@x=‘1’]", "unexpected character", "‘1’]", "straight quotes"),
        # XPath 2.0: functions
        ("/a[ends-with(@x, 'y')]", "no function 'ends-with'", "ends-with(@x, 'y')]", "substring("),
        ("/a[matches(@x, 'y')]", "no function 'matches'", "matches(@x, 'y')]", "contains()"),
        ("/a[lower-case(@x) = 'y']", "no function 'lower-case'", "lower-case(@x) = 'y']", "translate("),
        ("/a[exists(b)]", "no function 'exists'", "exists(b)]", "write [path]"),
        ("/a[empty(b)]", "no function 'empty'", "empty(b)]", "not(path)"),
        ("max(//b) > 3", "no function 'max'", "max(//b) > 3", "path[not(. < path)]"),
        ("/a[fn:contains(., 'x')]", "no function 'fn:contains'", "fn:contains(., 'x')]", "contains"),
        ("/a[if (b) then c else d]", "no function 'if'", "if (b) then c else d]", "XPath 2.0"),
        # XPath 2.0: operators
        ("/a[@x eq 1]", "found 'eq'", "eq 1]", "="),
        ("/a[@x ne 1]", "found 'ne'", "ne 1]", "!="),
        ("/a[@x lt 1]", "found 'lt'", "lt 1]", "<"),
        ("/a[@x ge 1]", "found 'ge'", "ge 1]", ">="),
        ("/a[1 to 3]", "found 'to'", "to 3]", "position()"),
        ("//a union //b", "found 'union'", "union //b", "|"),
        ("/a[@x idiv 2 = 1]", "found 'idiv'", "idiv 2 = 1]", "floor("),
        ("/a/(b|c)", "found '('", "(b|c)", "|"),
        ("for $x in //a return $x", "", None, "XPath 1.0"),
        ("some $x in //a satisfies $x = 1", "", None, "existential"),
        ("/a/element()", "element() cannot stand as a path step", "element()", "write *"),
        ("/a/b/string()", "string() cannot stand as a path step", "string()", "string("),
        # words that come close
        ("/a/chidl::b", "no axis 'chidl'", "chidl::b", "did you mean 'child'?"),
        ("//a/folowing::b", "no axis 'folowing'", "folowing::b", "did you mean 'following'?"),
        ("/a[conatins(., 'x')]", "no function 'conatins'", "conatins(., 'x')]", "did you mean 'contains'?"),
        ("/a[startswith(., 'x')]", "no function 'startswith'", "startswith(., 'x')]", "'starts-with'"),
        ("/a[postion() = 1]", "no function 'postion'", "postion() = 1]", "did you mean 'position'?"),
        # operators of other languages
        ("/a[b == 1]", "found '='", "= 1]", "single ="),
        ("/a[b && c]", "unexpected character '&'", "&& c]", "'and'"),
        ("/a[!b]", "unexpected character '!'", "!b]", "not("),
        ("/a[@x % 2 = 1]", "unexpected character '%'", "% 2 = 1]", "'mod'"),
        ("div#main", "unexpected character '#'", "#main", "@id"),
        ("/a[.[b]]", "a predicate cannot follow '.'", "[b]]", "self::node()["),
        ("/a[b AND c]", "found 'AND'", "AND c]", "'and' in small letters"),
        ("/a[b Or c]", "found 'Or'", "Or c]", "'or' in small letters"),
        ("/a[b MOD 2 = 1]", "found 'MOD'", "MOD 2 = 1]", "'mod' in small letters"),
        ("/a[NOT(b)]", "no function 'NOT'", "NOT(b)]", "not() in small letters"),
        ("/a[Contains(b, 'x')]", "no function 'Contains'", None, "contains() in small letters"),
        ("/a[b <> 1]", "found '>'", "> 1]", "!="),
        ("/a[not @x]", "found '@'", "@x]", "not(…)"),
        ("/a[not b]", "found 'b'", "b]", "not(…)"),
        ("/a[b and not contains(b, 'x')]", "found 'contains'", None, "not(…)"),
        ("/a[NOT b]", "found 'b'", "b]", "not(…)"),
        ("/a[b || c]", "found '|'", "| c]", "'or' between conditions, | between paths, and concat("),
        ("//a || //b", "found '|'", "| //b", "concat("),
        ("/a[b XOR c]", "found 'XOR'", "XOR c]", "not(a and b)"),
        ("/a[b like '%x%']", "found 'like'", "like '%x%']", "contains(x,"),
        ("/a[b IN ('x', 'y')]", "found 'IN'", "IN ('x', 'y')]", "x = 'a' or x = 'b'"),
        ("/a[b is null]", "found 'is'", "is null]", "not(x)"),
        ("/a[b between 1 and 2]", "found 'between'", "between 1 and 2]", "x >= a"),
        ("//a;", "unexpected character ';'", ";", "drop"),
        # sequences
        ("/a[@x = ('a', 'b')]", "found ','", ", 'b')]", "x = 'a' or x = 'b'"),
        ("(//a, //b)", "found ','", ", //b)", "a | b"),
        ("//a, //b", "found ','", ", //b", "a | b"),
        # dates
        ("/a[xs:date(@d) > 1]", "no function 'xs:date'", "xs:date(@d) > 1]", "translate(d, '-', '')"),
        ("/a[xs:dateTime(@d) > 1]", "no function 'xs:dateTime'", None, "translate(d, '-', '')"),
        ("/a[@d > current-date()]", "no function 'current-date'", "current-date()]", "no current time"),
        ("/a[year-from-date(@d) = 2024]", "no function", None, "substring(d, 1, 4) = 2024"),
        ("/a[xs:decimal(@d) = 1]", "no function 'xs:decimal'", None, "number(x)"),
        # quotes in strings
        ("/a[. = 'it's']", "never closed", "']", 'closes the string: put it into double quotes, "it\'s"'),
        ("/a[. = 'it\\'s']", "never closed", "']", "double quotes"),
        ("/a[. = 'it''s']", "found \"'s'\"", "'s']", "is not doubled"),
        ("/a[. = 'it's' and b = 'x']", "never closed", "']", "the ' before 's' closes"),
        ("/a[. = 'it's' or c='isn't']", "found 's'", "s' or c='isn't']", "double quotes"),
        ('/a[. = "say "hi""]', "found 'hi'", 'hi""]', "single quotes"),
        ("/a[. = 'x'and b = 'y]", "never closed", "'y]", "add the missing '"),
        # brackets
        ("/a[b", "to close '[' at column 3", "", None),
        ("/a[b[c]", "to close '[' at column 3", "", None),
        ("/a[contains(b, 'x']", "to close '(' at column 12", "]", None),
        ("(/a", "to close '(' at column 1", "", None),
        ("/a[b)]", "found ')'", ")]", "too many"),
        ("/a]", "found ']'", "]", "too many"),
        ("/a[b]]", "found ']'", "]", "too many"),
        # incomplete paths
        ("", "the query is empty", "", "/news//headline"),
        ("  \t", "the query is empty", None, "/news//headline"),
        ("/a/", "the query ends", "", None),
        ("//", "the query ends", "", None),
        ("/a///b", "found '/'", "/b", None),
        ("/a[]", "found ']'", "]", None),
        ("/a b", "found 'b'", "b", None),
        # types and arguments
        ("count('a')", "count() takes nodes, and this is a string", "'a')", None),
        ("/a[contains(b)]", "contains() takes 2 arguments, not 1", "contains(b)]", None),
        ("'a' | /b", "'|' unites node-sets", "'a' | /b", None),
        ("(1 + 2)[1]", "applies to nodes, and this is a number", "1 + 2)[1]", None),
    ],
)  # fmt: skip
def test_errors_have_reason_position_and_hint(
    query: str, reason: str, at: str | None, hint: str | None
) -> None:
    error = refused(query)
    assert reason in error.reason
    assert error.query == query
    if at is not None:
        assert query[error.position :] == at
        assert pointed_at(error) == at
    if hint is not None:
        assert error.hint is not None, str(error)
        assert hint in error.hint
        assert str(error).endswith(f"\n  hint: {error.hint}")


def test_reads_as_a_whole_like_this() -> None:
    assert str(refused("/feed/news:item[@lang='en']/fin:quote", {"news": "urn:news"})) == (
        "the prefix 'fin' is not declared\n"
        "  /feed/news:item[@lang='en']/fin:quote\n"
        "                              ^\n"
        "  hint: declare it with namespaces={'fin': '…'} (declared: news)"
    )


def test_an_undeclared_prefix_lists_those_that_are_declared() -> None:
    error = refused("/nwes:item", NAMESPACES)
    assert error.hint is not None
    assert "fin, news" in error.hint


def test_the_prefix_xml_needs_no_declaration() -> None:
    matcher = Matcher()
    matcher.add("q", "//*[@xml:lang='en']")
    assert "q" in matcher.match('<a xml:lang="en"/>')


def test_a_query_of_several_lines_shows_the_line_at_fault() -> None:
    error = refused("/a[b\n   and @x = 'y'\n   and conatins(c, 'd')\n   and e]")
    assert str(error).split("\n")[1:3] == ["     and conatins(c, 'd')", "         ^"]
    assert error.query[error.position :].startswith("conatins")


def test_tabs_do_not_shift_the_caret() -> None:
    assert pointed_at(refused("/a[\t\tconatins(b, 'c')]")) == "conatins(b, 'c')]"


@pytest.mark.parametrize("at", [0, 60, 1_000, 5_000])
def test_of_a_very_long_query_the_part_around_the_error_is_shown(at: int) -> None:
    query = "/a" * (at // 2) + "/p:b" + "/c" * 2_000
    error = refused(query)
    assert error.position == len("/a" * (at // 2)) + 1
    assert pointed_at(error).startswith("p:b")
    assert max(map(len, str(error).split("\n")[1:3])) < 120


def test_the_error_of_too_deep_nesting_has_its_position() -> None:
    query = "/a" + "[b" * 500 + "]" * 500
    error = refused(query)
    assert "nested more than" in error.reason
    assert 0 < error.position < len(query)
    assert query[error.position] == "b"


@pytest.mark.parametrize(
    "query", ["(" * 5_000, "/a[" * 5_000, "not(" * 5_000, "-(" * 5_000 + "1", "/a[(" * 999]
)
def test_nesting_thousands_deep_is_an_error_like_any_other(query: str) -> None:
    refused(query)


def test_forty_levels_of_nesting_are_accepted() -> None:
    matcher = Matcher()
    matcher.add("predicates", "/a" + "[a" * 40 + "]" * 40)
    matcher.add("parentheses", "(" * 40 + "/a" + ")" * 40)
    matcher.add("negations", "not(" * 40 + "/a" + ")" * 40)
    assert list(matcher.match("<a>" * 41 + "</a>" * 41)) == ["predicates", "parentheses", "negations"]


def test_the_error_is_a_value_error_and_can_be_pickled() -> None:
    error = refused("/a/p:b")
    assert isinstance(error, SapwoodError)
    assert isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert (again.reason, again.query, again.position, again.hint) == (
        error.reason, error.query, error.position, error.hint,
    )  # fmt: skip
    assert str(again) == str(error)


def test_an_error_leaves_the_population_as_it_was() -> None:
    matcher = Matcher()
    matcher.add("good", "/a")
    for attempt in ("/a[", "/p:a", "/a[count(b) = ]/.."):
        with pytest.raises(QueryError):
            matcher.add("bad", attempt)
        with pytest.raises(QueryError):
            matcher.replace("good", attempt)
    assert "bad" not in matcher
    assert matcher.query("good") == "/a"
    assert list(matcher.match("<a/>")) == ["good"]


def test_in_bulk_the_error_names_the_subscription_and_those_before_it_stay() -> None:
    matcher = Matcher()
    with pytest.raises(QueryError) as caught:
        matcher.add_many([("one", "/a"), ("two", "/a["), ("three", "/a")])
    assert any("'two'" in note for note in caught.value.__notes__)
    assert list(matcher) == ["one"]


@pytest.mark.parametrize("namespaces", [{"": "urn:x"}, {"p": ""}], ids=["no prefix", "no namespace"])
def test_a_namespace_map_that_xpath_cannot_use_is_refused_at_once_or_does_no_harm(
    namespaces: dict[str, str],
) -> None:
    try:
        matcher = Matcher(namespaces)
    except ValueError:
        return
    matcher.add("native", "/a")
    matcher.add("refined", "count(/a) * 1 = 1")
    assert list(matcher.match("<a/>")) == ["native", "refined"]


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("for $a in /a where $a/b AND $a/c return <r/>", "'and' in small letters"),
        ("for $a in /a where $a/b <> 1 return <r/>", "!="),
        ("for $a in /a where not $a/b return <r/>", "not(…)"),
        ("for $a in /a where $a/b || 'x' = 'y' return <r/>", "concat("),
        ("for $a in /a where $a/b = 'it's' return <r/>", "double quotes"),
        ("for $a in /a where $a/b = ('x', 'y') return <r/>", "x = 'a' or x = 'b'"),
        ("for $a in /a return <r>{($a/b, $a/c)}</r>", "one by one"),
        ("for $a in /a where $a/d > current-date() return <r/>", "no current time"),
        ("S//a[b <> 1][x->v] JOIN{v = w, 1 s} S//b[y->w]", "!="),
        ("S//a[x->v] JOIN{v <> w, 1 s} S//b[y->w]", "!="),
        ("S//a[x->v][not @y] JOIN{v = w, 1 s} S//b[y->w]", "not(…)"),
        ("S//a[x->v][y = 'it's'] JOIN{v = w, 1 s} S//b[y->w]", "double quotes"),
        ("S//a[x->v][y = xs:date('2024-01-01')] JOIN{v = w, 1 s} S//b[y->w]", "translate("),
    ],
)
def test_other_languages_have_the_same_hints(query: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        Broker().subscribe("q", query)
    assert hint in str(caught.value.hint), str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "//not/b",
        "/a[not]",
        "not(a)",
        "/AND/OR",
        "/a[AND and OR]",
        "//in | //like",
        "a = 'x'and b",
        "/a[b='x']",
    ],
)
def test_valid_queries_that_look_like_mistakes_are_accepted(query: str) -> None:
    Matcher().add("q", query)
