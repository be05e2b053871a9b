"""Linear paths and tag paths: texts, lookups, matches and positions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.lang.pattern import ANY_NAMESPACE, TEXT, Axis
from sapwood.relational.paths.linear_path import (
    LinearPath,
    TagPath,
    escape_element_name,
    find_positions,
    format_reversed_tag_path,
    format_tag_path,
    lookup_keys,
    parse_linear_path,
    parse_tag_path,
    path_matches,
)
from sapwood.relational.paths.path_index import PathIndex
from tests.support.oracles.naive_tables import embeddings

MANY = settings(max_examples=200, deadline=None)

# -- what is drawn: few names, so that much matches ------------------------------------------------------

NAMES = ["a", "a", "b", "u}a", "u}b"]
ELEMENT_TESTS = [*NAMES, "*", "u}*", f"{ANY_NAMESPACE}}}a"]
ENDS = [
    (Axis.ATTRIBUTE, "x"),
    (Axis.ATTRIBUTE, "u}x"),
    (Axis.ATTRIBUTE, "*"),
    (Axis.ATTRIBUTE, "u}*"),
    (Axis.CHILD, TEXT),
    (Axis.DESCENDANT, TEXT),
]
AXES = st.sampled_from([Axis.CHILD, Axis.CHILD, Axis.DESCENDANT])


def paths(
    tests: st.SearchStrategy[str], ends: st.SearchStrategy[tuple[Axis, str]]
) -> st.SearchStrategy[LinearPath]:
    steps = st.lists(st.tuples(AXES, tests), min_size=1, max_size=5)
    return st.builds(lambda steps, end: LinearPath((*steps, *end)), steps, st.lists(ends, max_size=1))


def tags(names: st.SearchStrategy[str], attributes: st.SearchStrategy[str]) -> st.SearchStrategy[TagPath]:
    elements = st.lists(names.map(escape_element_name), min_size=1, max_size=6)
    ends = st.lists(st.just(TEXT) | attributes.map("@{}".format), max_size=1)
    return st.builds(lambda elements, end: (*elements, *end), elements, ends)


PATHS = paths(st.sampled_from(ELEMENT_TESTS), st.sampled_from(ENDS))
TAGS = tags(st.sampled_from(NAMES), st.sampled_from(["x", "u}x", "u}y"]))

NASTY = st.text("{}%/@*a25B7D\0", min_size=1, max_size=6)
NASTY_NAMES = st.builds("{}}}{}".format, NASTY, st.sampled_from(["a", "b-c.d"])) | st.sampled_from(
    ["a", "@}a"]
)
NASTY_TESTS = NASTY_NAMES | st.builds("{}}}*".format, NASTY.filter(lambda uri: uri != ANY_NAMESPACE))
NASTY_ENDS = st.tuples(st.just(Axis.ATTRIBUTE), NASTY_TESTS) | st.sampled_from(ENDS)
READ_NAMES = NASTY_NAMES.filter(
    lambda name: name.count("}") < 2 and "\0" not in name
)  # a parser lets through


# -- texts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "prefix", "suffix", "middle"),
    [
        # the worked example
        ("/a//b//c/d/text()", "/a", "text()/d/c", "b"),
        ("/a//b/p//q/text()", "/a", "text()/q", "b/p"),
        ("/a//b/x/@y", "/a", "@y/x/b", None),
        ("/a//b/x//z/text()", "/a", "text()/z", "b/x"),
        # no break, or one at an end
        ("/a", "/a", "", None),
        ("/a/b/@x", "/a/b/@x", "", None),
        ("//a", "", "a", None),
        ("/a//text()", "/a", "text()", None),
        # wildcards break, too, and neither prefix nor suffix has any
        ("/*", "", "", "*"),
        ("/a/*/c", "/a", "c", "*"),
        ("/a//*/c", "/a", "c", "*"),
        ("/a/b/*", "/a/b", "", "*"),
        ("//*/@x", "", "@x", "*"),
        ("/a/@*", "/a", "", "@*"),
        ("/a/*/b//c/d", "/a", "d/c", "*/b"),
        ("/a//b/*/c", "/a", "c", "b/*"),
        # namespaces
        ("/{u}a//{u/v}b/@{u}x", "/{u}a", "@{u}x/{u/v}b", None),
        ("/a/{u}*/b", "/a", "b", "{u}*"),
        ("/a/{*}b/c", "/a", "c", "{*}b"),
        # neither end is cut too long
        ("/a" * 17, "/a" * 16, "", "a"),
        ("/a" * 17 + "//b" + "/c" * 16, "/a" * 16, "/".join("c" * 16), "a//b"),
    ],
)
def test_a_path_is_cut_in_three(text: str, prefix: str, suffix: str, middle: str | None) -> None:
    path = parse_linear_path(text)
    assert path.text == text
    assert (path.prefix, path.suffix, path.middle) == (prefix, suffix, middle)


def test_steps_are_those_of_patterns() -> None:
    path = parse_linear_path("/a//{u}b/{*}c/{u}*/@{u}x")
    assert path.steps == (
        (Axis.CHILD, "a"),
        (Axis.DESCENDANT, "u}b"),
        (Axis.CHILD, f"{ANY_NAMESPACE}}}c"),
        (Axis.CHILD, "u}*"),
        (Axis.ATTRIBUTE, "u}x"),
    )


@pytest.mark.parametrize("text", ["a", "/", "///a", "/a/", "//@x", "/a@x", "/{u", "/{u}", "/a{u}b", "/{{u}a"])
def test_texts_that_are_no_path_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a path"):
        parse_linear_path(text)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a}b/c}d", "{a%7Db/c}d"),
        ("{%}a", "{%7B%25}a"),
        ("*}a", "{%2A}a"),
        (f"{ANY_NAMESPACE}}}a", "{*}a"),
        ("**}a", "{**}a"),
        ("@u}a", "{@u}a"),
    ],
)
def test_hostile_namespaces_are_escaped(name: str, written: str) -> None:
    path = LinearPath(((Axis.CHILD, name), (Axis.ATTRIBUTE, name)))
    assert path.text == f"/{written}/@{written}"
    assert parse_linear_path(path.text) == path


@MANY
@given(paths(NASTY_TESTS, NASTY_ENDS))
def test_a_path_is_parsed_from_its_text(path: LinearPath) -> None:
    assert parse_linear_path(path.text) == path


@MANY
@given(tags(READ_NAMES, READ_NAMES))
def test_a_tag_path_is_parsed_from_its_text(tag: TagPath) -> None:
    assert parse_tag_path(format_tag_path(tag)) == tag
    assert format_reversed_tag_path(tag).startswith(format_reversed_tag_path(tag[-1:]))


@MANY
@given(tags(READ_NAMES, READ_NAMES))
def test_the_path_with_a_tag_path_s_text_matches_it_whatever_its_namespaces(tag: TagPath) -> None:
    path = parse_linear_path(format_tag_path(tag))
    assert path_matches(path, tag)
    assert (path.prefix, path.suffix) in lookup_keys(tag)


def test_texts_of_tag_paths() -> None:
    tag = ("a", "u}b", "@u}x")
    assert format_tag_path(tag) == "/a/{u}b/@{u}x"
    assert format_reversed_tag_path(("a", "b", "c", "d", TEXT)) == "text()/d/c/b/a"


def test_an_element_is_never_taken_for_an_attribute() -> None:
    """`@u` may be a namespace: `<x xmlns="@u"/>`."""
    element = ("a", escape_element_name("@u}x"))
    attribute = ("a", "@u}x")
    assert format_tag_path(element) == "/a/{@u}x"
    assert format_tag_path(attribute) == "/a/@{u}x"
    for text, elements, attributes in [
        ("/a/{@u}x", True, False),
        ("/a/@{u}x", False, True),
        ("/a/*", True, False),
        ("/a/@*", False, True),
        ("/a/{@u}*", True, False),
        ("/a/{*}x", True, False),
    ]:
        path = parse_linear_path(text)
        assert (path_matches(path, element), path_matches(path, attribute)) == (elements, attributes), text


# -- matching --------------------------------------------------------------------------------------------


@MANY
@given(PATHS, TAGS)
def test_a_path_matches_if_there_is_an_embedding(path: LinearPath, tag: TagPath) -> None:
    assert path_matches(path, tag) == any(True for _ in embeddings(path, tag))


@MANY
@given(st.lists(PATHS, max_size=5), st.lists(TAGS, max_size=5))
def test_the_index_matches_as_each_path_does(some: list[LinearPath], some_tags: list[TagPath]) -> None:
    found = dict(PathIndex(dict(enumerate(some))).match(some_tags))
    assert {tag: sorted(ids) for tag, ids in found.items()} == {
        tag: ids
        for tag in some_tags
        if (ids := [id for id, path in enumerate(some) if path_matches(path, tag)])
    }


@MANY
@given(PATHS, TAGS)
def test_lookup_keys_find_all_paths_that_match(path: LinearPath, tag: TagPath) -> None:
    found = lookup_keys(tag)
    assert len(found) == len(set(found))
    if path_matches(path, tag):
        assert (path.prefix, path.suffix) in found


@MANY
@given(
    paths(st.sampled_from(["a", "b"]), st.just((Axis.CHILD, TEXT))), tags(st.sampled_from("ab"), st.just("x"))
)
def test_a_suffix_without_middle_leaves_nothing_to_check(path: LinearPath, tag: TagPath) -> None:
    """Without a suffix there is: `/a` is found for `/a/b`, because of `/a/*`."""
    if path.middle is None and path.suffix:
        assert path_matches(path, tag) == ((path.prefix, path.suffix) in lookup_keys(tag))
    elif path.middle is None:
        assert path_matches(path, tag) == (path.prefix == format_tag_path(tag))


def test_lookup_keys_of_a_tag_path() -> None:
    assert sorted(lookup_keys(("a", "@x"))) == [
        ("", ""),
        ("", "@x"),
        ("", "@x/a"),
        ("/a", ""),
        ("/a", "@x"),
        ("/a/@x", ""),
    ]


@pytest.mark.parametrize(
    ("text", "tag", "at", "expected"),
    [
        ("/a//b//x/@y", "/a/b/b/x/@y", (2, 3), [(2, 4), (3, 4)]),
        ("/a//b/x/@y", "/a/b/b/x/@y", (2, 3), [(3, 4)]),
        ("/a//b//x/@y", "/a/b/b/x/@y", (3,), [(4,)]),
        ("/a//b//x/@y", "/a/b/b/x/@y", (), [()]),
        ("/a//b//x/@y", "/a/b/b/x", (2,), []),
        ("//text()", "/a/text()", (1,), [(2,)]),
        ("//a//a", "/a/a/a", (1, 2), [(1, 3), (2, 3)]),
    ],
)
def test_positions_of_steps(
    text: str, tag: str, at: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    assert find_positions(parse_linear_path(text), parse_tag_path(tag), at) == expected


@MANY
@given(PATHS, TAGS, st.data())
def test_positions_are_those_of_all_embeddings(path: LinearPath, tag: TagPath, data: st.DataObject) -> None:
    numbers = range(1, len(path.steps) + 1)
    at = tuple(sorted(data.draw(st.sets(st.sampled_from(numbers)))))
    expected = sorted({tuple(way[step - 1] for step in at) for way in embeddings(path, tag)})
    assert find_positions(path, tag, at) == expected
    assert find_positions(path, tag, at, most=len(expected)) == expected
    if expected and at:
        assert find_positions(path, tag, at, most=len(expected) - 1) is None


def test_embeddings_are_not_enumerated() -> None:
    """There are too many to enumerate; a search would not end."""
    deep = ("a",) * 300
    path = LinearPath(((Axis.DESCENDANT, "a"),) * 60)
    assert path_matches(path, deep)
    assert dict(PathIndex({7: path}).match([deep, (*deep, "b")])) == {deep: [7]}
    assert len(lookup_keys(deep)) == 17 * 17
    assert not path_matches(path, (*deep, "b"))
    assert find_positions(path, deep, (1,)) == [(i,) for i in range(1, 242)]
    assert find_positions(path, deep, (60,)) == [(300,)]
    assert find_positions(path, deep, (1, 30, 60)) is None
    assert find_positions(path, (*deep, "b"), (1, 30, 60)) == []
