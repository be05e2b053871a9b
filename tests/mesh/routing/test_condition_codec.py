"""The encoding of conditions and routes: canonical, the same in every process, and safe to decode."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from math import inf, nan
from random import Random

import msgpack  # type: ignore[import-untyped, unused-ignore]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.errors import RouteError, SapwoodError
from sapwood.lang import pattern
from sapwood.lang.languages import compile_text
from sapwood.lang.pattern import (
    EMPTY,
    FALSE,
    TEXT,
    TRUE,
    And,
    Axis,
    Condition,
    Has,
    Named,
    Path,
    Position,
    Step,
    all_of,
    any_of,
    canonical_text,
    negation,
)
from sapwood.lang.query import compile_query
from sapwood.mesh.routing.condition_codec import (
    MOST_BYTES,
    MOST_LEVELS,
    VERSION,
    decode_condition,
    encode_condition,
)
from sapwood.mesh.routing.route import Route, decode_route, encode_route, routes_of
from tests.support.generators import join_queries, join_strategies, transform_strategies
from tests.support.generators.query_texts import QueryTexts
from tests.support.oracles import lxml_oracle

SEEDS = st.integers(0, 2**32).map(Random)


def round_trip(condition: Condition) -> None:
    data = encode_condition(condition)
    decoded = decode_condition(data)
    assert encode_condition(decoded) == data
    assert decoded is condition or "nan" in canonical_text(condition)


# -- round trips -----------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_conditions_of_filters(rng: Random) -> None:
    for _ in range(10):
        query = lxml_oracle.random_query(rng, native=rng.random() < 0.5)
        round_trip(compile_query(query, lxml_oracle.NAMESPACES).condition)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_conditions_of_odd_texts(rng: Random) -> None:
    texts = QueryTexts(rng, 0.3)
    for namespaces in ({"p": "urn:p"}, {"*": "any", "p": "urn:p"}):
        for _ in range(5):
            try:
                query = compile_query(texts.query(), namespaces)
            except SapwoodError:
                continue
            round_trip(query.condition)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_routes_of_transformations_and_joins(rng: Random) -> None:
    transformation = transform_strategies.random_query(rng, beyond=rng.random() < 0.5).sapwood
    join = join_queries.written(join_strategies.random_query(rng), rng)
    for text, namespaces in (
        (transformation, transform_strategies.NAMESPACES),
        (join, join_queries.NAMESPACES),
    ):
        for route in routes_of(text, namespaces, "tenant"):
            assert decode_route(encode_route(route)) is route
            round_trip(route.condition)


_NAMES = st.sampled_from(["a", "b", "urn:p}a", "urn:p}*", "*", "\0}a", "กิ", "a·b", "u{r}n}a"])
_NUMBERS = st.floats(allow_nan=True) | st.sampled_from([0.0, -0.0, inf, -inf, nan, 2007.0])
_OTHER_NAN: float = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))[0]
_TESTS = st.builds(
    pattern.Test, st.sampled_from(["=", "!=", "contains", "starts-with"]), st.text(max_size=5)
) | st.builds(pattern.Test, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), _NUMBERS)


def _paths(conditions: st.SearchStrategy[Condition]) -> st.SearchStrategy[Path]:
    several = st.lists(conditions, max_size=2).map(tuple)
    elements = st.builds(Step, st.sampled_from([Axis.CHILD, Axis.DESCENDANT]), _NAMES, several)
    ends = st.builds(Step, st.just(Axis.ATTRIBUTE), _NAMES, several) | st.builds(
        Step, st.sampled_from([Axis.CHILD, Axis.DESCENDANT]), st.just(TEXT), several
    )
    return st.builds(
        lambda steps, end: Path((*steps, *end)), st.lists(elements, max_size=3), st.lists(ends, max_size=1)
    )


CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    st.builds(Has, st.just(EMPTY), st.none() | _TESTS)
    | st.builds(Named, st.text(max_size=4))
    | st.builds(Position, st.sampled_from(["=", "<", ">="]), _NUMBERS, st.booleans(), st.booleans()),
    lambda inner: (
        st.builds(Has, _paths(inner), st.none() | _TESTS, st.booleans())
        | st.lists(inner, max_size=3).map(all_of)
        | st.lists(inner, max_size=3).map(any_of)
        | inner.map(negation)
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(CONDITIONS)
def test_any_condition(condition: Condition) -> None:
    round_trip(condition)


@pytest.mark.parametrize("condition", [TRUE, FALSE, Has(EMPTY), negation(Named("a"))])
def test_the_simplest(condition: Condition) -> None:
    assert decode_condition(encode_condition(condition)) is condition


# -- the canonical form ----------------------------------------------------------------------------------


def test_the_order_in_which_a_query_is_written_makes_no_difference() -> None:
    one = compile_query("//a[b and @c = 1 and not(d)]").condition
    other = compile_query("//a[not(d)][@c = 1][b]").condition
    assert encode_condition(one) == encode_condition(other)


def test_neither_does_the_order_of_conditions_whose_texts_are_equal() -> None:
    """Patterns are sorted by their texts, which do not tell these two apart."""
    attribute = Path((Step(Axis.ATTRIBUTE, "x"),))
    one = Has(attribute, pattern.Test("contains", "y"))
    first = Has(attribute, pattern.Test("contains", "y"), first=True)
    assert str(one) == str(first) and one is not first
    orders = And((one, first)), And((first, one))
    assert orders[0] is not orders[1]
    assert encode_condition(orders[0]) == encode_condition(orders[1])


def test_numbers_have_one_form() -> None:
    def encoded(value: float) -> bytes:
        return encode_condition(Has(EMPTY, pattern.Test("=", value)))

    assert encoded(nan) == encoded(_OTHER_NAN)
    assert encode_condition(Position("=", -0.0)) == encode_condition(Position("=", 0))
    assert encoded(0.0).endswith(struct.pack(">d", 0.0))
    assert len({encoded(value) for value in (0.0, nan, inf, -inf, 1.0, -1.0, 5e-324)}) == 7
    assert encoded(2007.0) != encode_condition(Has(EMPTY, pattern.Test("=", "2007")))


_KEYS = """
import sys
from random import Random
from sapwood.mesh.routing.route import routes_of
from tests.support.oracles import lxml_oracle
rng = Random(7)
for _ in range(300):
    query = lxml_oracle.random_query(rng, False)
    print(*[route.key for route in routes_of(query, lxml_oracle.NAMESPACES, 't', ('s', ''))])
"""


def test_keys_are_the_same_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", _KEYS],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (same,) = printed
    keys = [list(map(int, line.split())) for line in same.decode().splitlines()]
    rng = Random(7)
    for known in keys:
        query = lxml_oracle.random_query(rng, False)
        routes = routes_of(query, lxml_oracle.NAMESPACES, "t", ("s", ""))
        assert [route.key for route in routes] == known
    assert len(keys) == 300 and max(map(max, keys)).bit_length() > 120


# -- hostile bytes ---------------------------------------------------------------------------------------


def made(form: object) -> bytes:
    return bytes((VERSION,)) + bytes(msgpack.packb(form))


def nested(levels: int) -> object:
    form: object = [1, "a"]
    for _ in range(levels):
        form = [5, [3, form, [1, "b"]]]
    return form


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no bytes"),
        (b"\x07\x91\x00", "encoding 7"),
        (b"\x01", "damaged"),
        (b"\x01\xc1", "damaged"),
        (made([1, "a"])[:-1], "damaged"),
        (made([1, "a"]) + b"\0", "damaged"),
        (b"\x01" + b"\xdd\xff\xff\xff\xff" * 3, "damaged"),
        (b"\x01" + b"\x91" * 2_000, "damaged"),
        (made({"a": 1}), "damaged"),
        (made("a"), "where a list should be"),
        (made([]), "where a condition should be"),
        (made([9]), "kind 9"),
        (made([None]), "kind None"),
        (made([1]), "kind 1 with 0 parts"),
        (made([1, b"a"]), "kind 1"),
        (made([0, False, None]), "kind 0"),
        (made([0, 1, None, None]), "kind 0"),
        (made([0, False, 8, "x"]), "operator 8"),
        (made([0, False, -1, "x"]), "operator -1"),
        (made([0, False, 2, "x"]), "operator 2"),
        (made([0, False, 6, 1.0]), "operator 6"),
        (made([0, False, 0, 1]), "operator 0"),
        (made([0, False, 0, None]), "operator 0"),
        (made([0, False, None, None, 5]), "where a step"),
        (made([0, False, None, None, [3, "a"]]), "axis 3"),
        (made([0, False, None, None, [0, "a/b"]]), "name test"),
        (made([0, False, None, None, [0, ""]]), "name test"),
        (made([0, False, None, None, [0, "//"]]), "name test"),
        (made([0, False, None, None, [0, "}a"]]), "name test"),
        (made([0, False, None, None, [0, "\0}*"]]), "name test"),
        (made([0, False, None, None, [0, "x\0y}a"]]), "name test"),
        (made([0, False, None, None, [2, "text()"]]), "name test"),
        (made([0, False, None, None, [0, 5]]), "name test"),
        (made([0, False, None, None, [2, "a"], [0, "b"]]), "goes on from"),
        (made([0, False, None, None, [0, "text()"], [0, "b"]]), "goes on from"),
        (made([2, 6, 1.0, False, False]), "position"),
        (made([2, 0, 1, False, False]), "position"),
        (made([2, 0, 1.0, False]), "position"),
        # other forms of what has one
        (made([3, [1, "a"]]), "canonical"),
        (made([3, [1, "b"], [1, "a"]]), "canonical"),
        (made([3, [1, "a"], [1, "a"]]), "canonical"),
        (made([3, [1, "a"], [3, [1, "b"], [1, "c"]]]), "canonical"),
        (made([5, [5, [1, "a"]]]), "canonical"),
        (made([0, True, None, None]), "canonical"),
        (made([False, False, None, None]), "kind False"),
        (made([0.0, False, None, None]), "kind 0.0"),
        (made([0, False, 0, -0.0]), "canonical"),
        (made([0, False, 0, _OTHER_NAN]), "canonical"),
        (made([2, 0, -0.0, False, False]), "canonical"),
        (made([2, True, 1.0, False, False]), "position"),
        (made([0, False, None, None, [False, "a"]]), "where a step"),
        (made([3, [1, "a"], [4]]), "canonical"),
        (made([3, [3], [1, "a"]]), "canonical"),
        (made([4, [1, "a"], [3]]), "canonical"),
        (made([4, [1, "a"]]), "canonical"),
        (made([5, [3]]), "canonical"),
        (made([5, [4]]), "canonical"),
        (made([3, [1, "a"], [3, [1, "a"], [1, "b"]]]), "canonical"),
        (made([0, False, True, "x"]), "operator True"),
        (bytes((VERSION,)) + b"\x92\x01\xd9\x01a", "canonical"),  # a length in more bytes than it takes
        (made(nested(MOST_LEVELS)), "levels"),
        (made([1, "a" * MOST_BYTES]), "bytes"),
    ],
)
def test_bytes_that_are_no_condition(data: bytes, reason: str) -> None:
    with pytest.raises(RouteError, match=reason):
        decode_condition(data)


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_damaged_bytes_are_refused_or_canonical(rng: Random) -> None:
    query = lxml_oracle.random_query(rng, False)
    (route,) = routes_of(query, lxml_oracle.NAMESPACES, "tenant", ("stream",))
    data = bytearray(encode_route(route))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        kind = rng.random()
        if kind < 0.6:
            data[at] = rng.randrange(256)
        elif kind < 0.8:
            del data[at]
        else:
            data.insert(at, rng.randrange(256))
    try:
        decoded = decode_route(bytes(data))
    except RouteError as error:
        assert len(str(error)) < 300
        return
    assert encode_route(decoded)[:-1] == data[:-1]
    assert Route(decoded.tenant, decoded.stream, decoded.condition) is decoded  # by the key of its encoding


@pytest.mark.parametrize("data", [b"", b"\0", made(["t", None, [3]]), made(["t", None]) + b"\1", b"\1\1"])
def test_bytes_that_are_no_route(data: bytes) -> None:
    with pytest.raises(RouteError):
        decode_route(data)


def test_a_condition_that_is_too_large_cannot_be_encoded() -> None:
    names = [Named("x" * 60 + str(number)) for number in range(5_000)]
    with pytest.raises(RouteError, match=f"{MOST_BYTES:,}"):
        encode_condition(any_of(names))
    deep: Condition = Named("a")
    for _ in range(MOST_LEVELS):
        deep = Has(Path((Step(Axis.CHILD, "a", (deep,)),)))
    with pytest.raises(RouteError, match="levels"):
        encode_condition(deep)


def test_a_query_whose_condition_is_too_large_routes_everything() -> None:
    text = " | ".join(f"//{'x' * 60}{number}" for number in range(5_000))
    assert compile_text(text, {}) is not None
    (route,) = routes_of(text, {}, "t")
    assert route == Route("t", None, TRUE)
