"""A packed matcher or broker is the matcher or broker: the same answers, and the same future."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sapwood import Broker, Delivery, Limits, Matcher, MessageError, QueryError
from sapwood.engine.serialization import PackError
from tests.support.generators import transform_strategies
from tests.support.oracles import lxml_oracle


def answers(matcher: Matcher, messages: list[bytes]) -> list[list[object]]:
    """The answers to each message: ids, numbers and selected nodes, or the reason of its refusal."""
    said: list[list[object]] = []
    for message in messages:
        try:
            matches = matcher.match(message)
            said.append([list(matches), matches.numbers.tolist(), matcher.select(message)])
        except MessageError as error:
            said.append([str(error)])
    return said


def about(matcher: Matcher) -> list[tuple[object, ...]]:
    """What it says about itself."""
    return [(id, matcher.number(id), matcher.query(id), str(matcher.explain(id))) for id in matcher]


def random_matcher(rng: random.Random, count: int) -> Matcher:
    """Queries from all of XPath, some of them equal, some gone again."""
    matcher = Matcher(lxml_oracle.NAMESPACES)
    queries = [lxml_oracle.random_query(rng, native=rng.random() < 0.6) for _ in range(count)]
    matcher.add_many((("s", i) if i % 3 else i, rng.choice(queries)) for i in range(count))
    for id in rng.sample(list(matcher), count // 10):
        matcher.remove(id)
    return matcher


def random_messages(rng: random.Random, count: int) -> list[bytes]:
    return [lxml_oracle.random_message(rng, lxml_oracle.random_document(rng)) for _ in range(count)]


# -- the same answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("warm", [False, True])
def test_an_unpacked_matcher_answers_as_the_packed_one(seed: int, warm: bool) -> None:
    rng = random.Random(seed)
    matcher, messages = random_matcher(rng, 60), random_messages(rng, 12)
    if warm:
        answers(matcher, messages)
    unpacked = Matcher.unpack(matcher.pack())
    assert about(unpacked) == about(matcher)
    expected = answers(matcher, messages)
    assert any(said[0] for said in expected)
    assert answers(unpacked, messages) == expected
    assert answers(unpacked, messages) == expected  # now that it is warm, too


def test_packing_leaves_the_matcher_as_it_is() -> None:
    rng = random.Random(7)
    matcher, messages = random_matcher(rng, 60), random_messages(rng, 10)
    before = answers(matcher, messages), about(matcher)
    matcher.pack()
    assert (answers(matcher, messages), about(matcher)) == before


def test_an_empty_matcher_can_be_packed() -> None:
    unpacked = Matcher.unpack(Matcher().pack())
    assert list(unpacked.match("<a/>")) == []
    unpacked.add("s", "/a")
    assert list(unpacked.match("<a/>")) == ["s"]


def test_limits_and_namespaces_are_packed() -> None:
    matcher = Matcher({"p": "urn:p"}, Limits(depth=3))
    unpacked = Matcher.unpack(matcher.pack())
    unpacked.add("s", "//p:a")
    assert list(unpacked.match("<x xmlns='urn:p'><a/></x>")) == ["s"]
    with pytest.raises(MessageError, match="deep"):
        unpacked.match("<a><a><a><a/></a></a></a>")
    with pytest.raises(ValueError, match="bound"):
        unpacked.declare({"p": "urn:other"})


def test_how_equal_queries_were_written_is_packed() -> None:
    matcher = Matcher()
    matcher.add_many([("a", "//a[@x='1']"), ("b", "//a[ @x = '1' ]"), ("c", "//a[@x='1']")])
    unpacked = Matcher.unpack(matcher.pack())
    assert [unpacked.query(id) for id in "abc"] == ["//a[@x='1']", "//a[ @x = '1' ]", "//a[@x='1']"]


def test_unread_matches_survive_packing() -> None:
    matcher = Matcher()
    matcher.add_many([("a", "//a"), ("b", "//b"), ("both", "//a | //b")])
    unread = matcher.match("<a/>")
    packed = matcher.pack()
    matcher.remove("a")
    assert list(Matcher.unpack(packed).match("<a/>")) == ["a", "both"]
    assert unread.numbers.tolist() == [0, 2]


def test_a_matcher_can_be_pickled_with_matches_unread() -> None:
    matcher = Matcher()
    matcher.add_many([("a", "//a"), ("n", "count(//a) > 1")])
    unread = matcher.match("<a><a/></a>")
    copy = pickle.loads(pickle.dumps(matcher))
    copy.remove("a")
    assert list(unread) == ["a", "n"]
    assert list(copy.match("<a><a/></a>")) == ["n"]
    assert list(matcher.match("<a><a/></a>")) == ["a", "n"]


# -- the same future -------------------------------------------------------------------------------------

_SEED = random.Random(2024)
_QUERIES = [lxml_oracle.random_query(_SEED, native=i % 3 > 0) for i in range(60)] + [
    "//late:a",
    "count(//late:*) = 1",
]
_MESSAGES = [*random_messages(_SEED, 8), b"<a xmlns='urn:late'/>"]


class Editing(RuleBasedStateMachine):
    """A matcher and its unpacked copy give the same answers after the same changes."""

    @initialize(count=st.integers(0, 30))
    def start(self, count: int) -> None:
        self.original = Matcher(lxml_oracle.NAMESPACES)
        for id in range(count):
            self.add(id, _QUERIES[id])
        self.unpacked = Matcher.unpack(self.original.pack())

    def both(self) -> list[Matcher]:
        return [self.original, *([self.unpacked] if hasattr(self, "unpacked") else [])]

    @rule(id=st.integers(0, 40), query=st.sampled_from(_QUERIES))
    def add(self, id: int, query: str) -> None:
        raised = []
        for matcher in self.both():
            try:
                matcher.replace(id, query) if id in matcher else matcher.add(id, query)
            except QueryError as error:
                raised.append(str(error))
        assert len(raised) in (0, len(self.both()))

    @rule(id=st.integers(0, 40))
    def remove(self, id: int) -> None:
        for matcher in self.both():
            if id in matcher:
                matcher.remove(id)

    @rule()
    def declare(self) -> None:
        for matcher in self.both():
            matcher.declare({"late": "urn:late"})

    @rule()
    def pack_again(self) -> None:
        self.unpacked = Matcher.unpack(self.unpacked.pack())

    @rule(message=st.sampled_from(_MESSAGES))
    def match(self, message: bytes) -> None:
        assert answers(self.unpacked, [message]) == answers(self.original, [message])

    @invariant()
    def the_same_about_themselves(self) -> None:
        assert about(self.unpacked) == about(self.original)

    def teardown(self) -> None:
        if hasattr(self, "unpacked"):
            assert answers(self.unpacked, _MESSAGES) == answers(self.original, _MESSAGES)
            fresh = Matcher(lxml_oracle.NAMESPACES | {"late": "urn:late"})
            fresh.add_many((id, self.original.query(id)) for id in self.original)
            ids = [[*matches] for matches in fresh.match_many(_MESSAGES)]
            assert [[*matches] for matches in self.unpacked.match_many(_MESSAGES)] == ids
            for matcher in (*self.both(), fresh):
                matcher.close()


TestEditing = Editing.TestCase
TestEditing.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)


# -- brokers ---------------------------------------------------------------------------------------------


def random_queries(rng: random.Random, count: int) -> list[str]:
    """Filters and transformations, a quarter of them for lxml."""
    return [
        lxml_oracle.random_query(rng, native=i % 8 > 1)
        if i % 2
        else transform_strategies.random_query(rng, beyond=i % 8 < 2).sapwood
        for i in range(count)
    ]


def change(broker: Broker, rng: random.Random, queries: list[str]) -> None:
    """Some go, some come, and some become of the other kind."""
    for id in rng.sample(list(broker), 8):
        broker.unsubscribe(id)
    for id in rng.sample(list(broker), 8):
        broker.replace(id, rng.choice(queries))
    for id in range(8):
        broker.subscribe(("new", rng.random(), id), rng.choice(queries))


def published(broker: Broker, messages: list[str]) -> list[list[Delivery]]:
    return [broker.publish(message, id=number) for number, message in enumerate(messages)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("warm", [False, True])
def test_an_unpacked_broker_delivers_as_the_packed_one(seed: int, warm: bool) -> None:
    rng = random.Random(seed)
    queries = random_queries(rng, 60)
    messages = [transform_strategies.random_document(rng) for _ in range(10)]
    broker = Broker(transform_strategies.NAMESPACES)
    broker.subscribe_many((f"s{i}", rng.choice(queries)) for i in range(80))
    change(broker, rng, queries)
    if warm:
        published(broker, messages)
    unpacked = Broker.unpack(broker.pack())
    for round in range(3):
        assert [(id, unpacked.query(id)) for id in unpacked] == [(id, broker.query(id)) for id in broker]
        assert unpacked.transformations == broker.transformations
        expected = published(broker, messages)
        assert sum(map(len, expected)) > 20
        assert published(unpacked, messages) == expected
        for each in (broker, unpacked):
            change(each, random.Random(f"{seed} {round}"), queries)


def test_a_broker_around_a_matcher_has_its_filters() -> None:
    matcher = Matcher({"p": "urn:p"}, Limits(depth=2))
    matcher.add_many([("a", "/a"), ("gone", "/a"), ("p", "//p:a")])
    matcher.remove("gone")
    with Broker.around(matcher) as broker:
        broker.subscribe("made", "for $a in //p:a return <made/>")
        assert list(broker) == ["a", "p", "made"]
        unpacked = Broker.unpack(broker.pack())
        for each in (broker, unpacked):
            assert [id for id, *_ in each.publish("<a xmlns='urn:p'/>")] == ["p", "made"]
            with pytest.raises(MessageError, match="deep"):
                each.publish("<a><a><a/></a></a>")
        ids, numbers = unpacked.numbered()
        assert dict(zip(ids, numbers.tolist(), strict=True)) == {"a": 0, "p": 2, "made": 3}


# -- files -----------------------------------------------------------------------------------------------


def test_a_saved_matcher_is_loaded_in_another_process(tmp_path: Path) -> None:
    rng = random.Random(3)
    matcher, document = random_matcher(rng, 60), lxml_oracle.random_document(rng)
    matcher.save(tmp_path / "index")
    script = (
        "import sys; from sapwood import Matcher; m = Matcher.load(sys.argv[1]); "
        "print([list(m.match(sys.argv[2])), list(m)])"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "index"), document]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.strip() == str([list(matcher.match(document)), list(matcher)])


def test_saving_replaces_what_was_there_and_leaves_nothing_else(tmp_path: Path) -> None:
    matcher = Matcher()
    matcher.add("old", "/a")
    matcher.save(tmp_path / "index")
    matcher.replace("old", "/b")
    matcher.add("new", "/a")
    matcher.save(str(tmp_path / "index"))
    assert list(Matcher.load(str(tmp_path / "index")).match("<a/>")) == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_loading_an_absent_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Matcher.load(tmp_path / "index")


# -- what is no packed matcher ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "foreign", [b"", b"\n", b"PK\x03\x04", b"<a/>", pickle.dumps({"a": 1}), b"SAPWOOD-INDEX 2", b"SAPWOOD-IN"]
)
def test_foreign_bytes_are_no_packed_matcher(foreign: bytes, tmp_path: Path) -> None:
    with pytest.raises(PackError, match="no packed matcher; make the pack again"):
        Matcher.unpack(foreign)
    (tmp_path / "index").write_bytes(foreign)
    with pytest.raises(PackError, match="no packed matcher"):
        Matcher.load(tmp_path / "index")


@pytest.mark.parametrize("format", [b"0", b"1", b"999", b"\xff", b""])
def test_a_pack_of_another_format_is_refused(format: bytes) -> None:
    head, newline, content = Matcher().pack().partition(b"\n")
    magic, _, checksum = head.split(b" ")
    with pytest.raises(PackError, match=r"packed in format .* make the pack again"):
        Matcher.unpack(b" ".join([magic, format, checksum]) + newline + content)
    with pytest.raises(PackError, match=r"packed in format .* make the pack again"):
        Matcher.unpack(b" ".join([magic, format]) + newline + content)


def test_a_cut_matcher_is_damaged_wherever_it_is_cut() -> None:
    matcher = random_matcher(random.Random(5), 12)
    packed = matcher.pack()
    for length in [*range(min(200, len(packed))), *range(200, len(packed), 97), len(packed) - 1]:
        with pytest.raises(PackError, match="make the pack again"):
            Matcher.unpack(packed[:length])
    with pytest.raises(PackError, match="damaged"):
        Matcher.unpack(packed + b"\0")


def test_a_matcher_with_any_changed_byte_is_refused() -> None:
    rng = random.Random(6)
    packed = random_matcher(rng, 12).pack()
    for place in [*range(100), *rng.sample(range(len(packed)), 400)]:
        damaged = bytearray(packed)
        damaged[place] ^= 1 << rng.randrange(8)
        with pytest.raises(PackError, match="make the pack again"):
            Matcher.unpack(bytes(damaged))


def test_a_matcher_whose_classes_have_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher()
    matcher.add("s", "//a[b]")
    packed = matcher.pack()

    def changed(self: Matcher, state: dict[str, object]) -> None:
        raise KeyError("a field of today")

    monkeypatch.setattr(Matcher, "__setstate__", changed)
    with pytest.raises(PackError, match=r"another version .*a field of today.*make the pack again"):
        Matcher.unpack(packed)
