"""The automaton in C against the one in Python: the same answers for the same queries, messages and edits."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapwood import Broker, Matcher, Tuning
from sapwood.engine import index
from sapwood.engine.automaton.automaton import Automaton
from sapwood.engine.subscriptions import ListedNumbers
from sapwood.errors import MessageError
from sapwood.lang.literals.numbers import to_number
from tests.support.automata import is_empty
from tests.support.compiled_kernel import compiled_kernel
from tests.support.oracles import lxml_oracle
from tests.support.query_classes import eager_classes

compiled_kernel()  # skips all of it where there is none

from sapwood.engine.kernel import _kernel  # noqa: E402
from sapwood.engine.kernel.kernel_automaton import KernelAutomaton  # noqa: E402

SWITCHES = {
    "everything on": Tuning(),
    "expat": Tuning(tokenizer=False),
    "no classes": Tuning(query_classes=False),
    "small cache": Tuning(cache=100),
    "no cache": Tuning(cache=0),
}


@pytest.fixture(autouse=True, scope="module")
def classes_in_python() -> Iterator[None]:
    """Have query classes from the first message on in Python, too."""
    with eager_classes():
        yield


def pair_of_matchers(tuning: Tuning, python_classes: bool = True) -> tuple[Matcher, Matcher]:
    compiled = Matcher(lxml_oracle.NAMESPACES, tuning=tuning)
    python_tuning = Tuning(kernel=False, query_classes=python_classes)
    python = Matcher(lxml_oracle.NAMESPACES, tuning=python_tuning)
    assert isinstance(compiled.index.automaton, KernelAutomaton)
    assert isinstance(python.index.automaton, Automaton)
    return compiled, python


def assert_same(compiled: Matcher, python: Matcher, message: bytes | str) -> None:
    found, wanted = compiled.match(message), python.match(message)
    assert len(found) == len(wanted), message
    assert list(found) == list(wanted), message
    assert found.numbers.tolist() == wanted.numbers.tolist()
    ordered = compiled.list_numbers([message, message])
    if ordered is not None:  # it is where lxml has a say, and for a document type
        numbers = wanted.numbers.tolist()
        assert [part.tolist() for part in _split(ordered)] == [numbers, numbers]
        unordered = compiled.list_numbers([message, message], ordered=False)
        assert unordered is not None
        assert [sorted(part.tolist()) for part in _split(unordered)] == [numbers, numbers]


def _split(listed: ListedNumbers) -> list[NDArray[np.int64]]:
    assert listed.ends[-1] == len(listed.numbers)
    return np.split(listed.numbers, listed.ends[:-1])


def test_numbers_of_several_messages() -> None:
    """Listed at once where the automaton decides alone; one query may be found by several of its values."""
    matcher = Matcher()
    queries = ["/a", "/a/b", "//b", "/a[b = 1 or b = 2]", "/a[b > 0][c]", "/a/b"]
    matcher.add_many((f"s{number}", query) for number, query in enumerate(queries))
    matcher.remove("s1")
    messages = ["<a><b>1</b><b>2</b><c/></a>", "<z/>", "<a/>"]
    for ordered in (True, False):
        listed = matcher.list_numbers(messages, ordered)
        assert listed is not None
        found = [sorted(part.tolist()) for part in _split(listed)]
        assert found == [matcher.match(message).numbers.tolist() for message in messages]
        assert found == [[0, 2, 3, 4, 5], [], [0]]
    empty = matcher.list_numbers([])
    assert empty is not None and not len(empty.numbers) and not len(empty.ends)
    assert matcher.list_numbers(["<a/>", "<a>"]) is None  # one is refused
    matcher.add("lxml", "/a[normalize-space(b) = 'x']")
    assert matcher.list_numbers(messages) is None
    assert Matcher(tuning=Tuning(kernel=False)).list_numbers(messages) is None


@pytest.mark.parametrize(
    ("tuning", "python_classes"),
    [
        pytest.param(Tuning(), False, id="everything on, against lists in Python"),
        *(pytest.param(tuning, True, id=name, marks=pytest.mark.slow) for name, tuning in SWITCHES.items()),
    ],
)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_the_automata_agree_under_edits(tuning: Tuning, python_classes: bool, seed: int) -> None:
    rng = random.Random(seed)
    compiled, python = pair_of_matchers(tuning, python_classes)
    documents = [lxml_oracle.random_document(rng, budget=25) for _ in range(5)]
    messages = [lxml_oracle.random_message(rng, document) for document in documents]
    ids: list[Hashable] = []
    for i in range(40):
        if ids and rng.random() < 0.3:
            gone = ids.pop(rng.randrange(len(ids)))
            compiled.remove(gone)
            python.remove(gone)
        else:
            query = lxml_oracle.random_query(rng)
            compiled.add(i, query)
            python.add(i, query)
            ids.append(i)
        if rng.random() < 0.5:
            which = rng.randrange(5)
            assert_same(compiled, python, rng.choice((messages[which], documents[which])))
    for message in messages:
        assert_same(compiled, python, message)
        assert compiled.select(message) == python.select(message)
    for gone in ids:
        compiled.remove(gone)
    assert is_empty(compiled.index)


@pytest.mark.parametrize("declaration", ["", "<?xml version='1.0' encoding='{}'?>"])
@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "latin-1", "utf-16", "nonsense"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("name", ["b", "\u00e9", "\ud800"])
def test_text_is_read_whatever_it_declares(declaration: str, encoding: str, start: str, name: str) -> None:
    compiled, python = pair_of_matchers(Tuning())
    for i, query in enumerate(["/a/b", "/a/\u00e9", "//*[text() = '\u00e9']", "//*[. = 'x']"]):
        compiled.add(i, query)
        python.add(i, query)
    message = f"{start}{declaration.format(encoding)}<a><{name}>\u00e9</{name}>x</a>"
    try:
        wanted: list[Hashable] | str = list(python.match(message))
    except MessageError as error:
        wanted = str(error)
    try:
        found: list[Hashable] | str = list(compiled.match(message))
    except MessageError as error:
        found = str(error)
    assert found == wanted


def deep_document(rng: random.Random, depth: int) -> str:
    """A document that nests deeper than the masks of twigs have bits."""
    names = [rng.choice("aabc") for _ in range(depth)]
    inner = "".join(f"<{name} x='{rng.randrange(3)}'>" for name in names)
    return inner + "1" + "".join(f"{rng.choice(['', '<d/>'])}</{name}>" for name in reversed(names))


@pytest.mark.parametrize("depth", [62, 63, 64, 65, 90])
def test_deep_messages_are_matched_as_in_python(depth: int) -> None:
    rng = random.Random(depth)
    compiled, python = pair_of_matchers(Tuning())
    queries = [lxml_oracle.random_query(rng) for _ in range(60)]
    queries += ["//a[b]//c", "//a[@x = 1][b]/c", "//b[d]", "//a[.//b[@x < 2]]/d", "//a[not(b)]", "//c[. = 1]"]
    compiled.add_many(enumerate(queries))
    python.add_many(enumerate(queries))
    for _ in range(6):
        assert_same(compiled, python, deep_document(rng, depth))


def test_results_that_were_not_read_keep_their_meaning_when_classes_split() -> None:
    """A class holds queries that no message has told apart so far; later messages do."""
    compiled, python = pair_of_matchers(Tuning())
    queries = (
        [f"//{name}" for name in "abcdef"] + [f"/r//{name}" for name in "abcdef"] + ["//*", "/r/*", "//a/b"]
    )
    compiled.add_many(enumerate(queries))
    python.add_many(enumerate(queries))
    rng = random.Random(1)
    unread = []
    for _ in range(200):
        names = rng.choices("abcdefgh", k=rng.randint(1, 4))
        message = f"<r>{''.join(f'<{n}>' for n in names)}{''.join(f'</{n}>' for n in reversed(names))}</r>"
        unread.append((compiled.match(message), list(python.match(message))))
    compiled.index.clear_cache()
    for found, wanted in unread:
        assert list(found) == wanted
        assert len(found) == len(wanted)


@pytest.mark.parametrize("packs", [True, False], ids=["packed with the kernel", "packed in Python"])
def test_a_pack_is_loaded_by_either_automaton(packs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    queries = [lxml_oracle.random_query(rng) for _ in range(300)]
    _, python = pair_of_matchers(Tuning())
    python.add_many(enumerate(queries))
    messages = [lxml_oracle.random_document(rng) for _ in range(20)]
    with monkeypatch.context() as patch:
        if not packs:
            patch.setattr(index, "KERNEL", None)
        matcher = Matcher(lxml_oracle.NAMESPACES)
        matcher.add_many(enumerate(queries))
        assert isinstance(matcher.index.automaton, KernelAutomaton) == packs
        packed = matcher.pack()
    for loads in (True, False):
        with monkeypatch.context() as patch:
            if not loads:
                patch.setattr(index, "KERNEL", None)
            copy = Matcher.unpack(packed)
        assert isinstance(copy.index.automaton, KernelAutomaton) == loads
        for message in messages:
            assert_same(copy, python, message)
        for id in range(300):
            copy.remove(id)
        assert is_empty(copy.index)


NUMBERS = [
    "",
    " ",
    "1",
    "-1",
    "+1",
    "1.",
    ".5",
    ".",
    "-.5",
    "1e3",
    "1E+3",
    "1e",
    "1e+",
    "1e5e",
    "1e400",
    "-1e-400",
]
NUMBERS += ["0x10", "1 2", "\u00a01", "inf", "nan", "00012.5000", "123456789012345678901234567890", "1" * 900]
NUMBERS += [
    "0." + "0" * 400 + "1",
    "9007199254740993",
    "2.2250738585072011e-308",
    "1e-5",
    "  7\n",
    "5-",
    "--5",
]


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("constant", ["1", "-0.5", "1000", "12.5", "0", "1e-5"])
def test_values_are_converted_to_numbers_as_in_python(op: str, constant: str) -> None:
    compiled, python = pair_of_matchers(Tuning())
    number = float(constant)
    for matcher in (compiled, python):
        matcher.add("alone", f"//a[@x {op} {number:.17f}]")
        matcher.add("in a twig", f"/r[b]/a[@x {op} {number:.17f}]")
    for value in [*NUMBERS, *(repr(random.Random(i).uniform(-2, 2)) for i in range(50))]:
        assert_same(compiled, python, f"<r><b/><a x='{value}'/></r>")
    assert to_number("1e5e") == 1e5  # what both have to know


def test_comparisons_below_one_anchor_see_all_values() -> None:
    compiled, python = pair_of_matchers(Tuning())
    queries = [
        f"//a[b {op} {n}][c {other} {n}]"
        for op in ("<", ">=", "!=", "=")
        for other in (">", "!=", "<=")
        for n in (1, 2, 3)
    ]
    queries += [
        "//a[b != 'x'][c]",
        "//a[b != 'y'][c != 'x']",
        "//a[@x != 'x'][b < 2]",
        "//r[a/b < 2][a/c > 2]",
    ]
    compiled.add_many(enumerate(queries))
    python.add_many(enumerate(queries))
    rng = random.Random(3)
    for _ in range(300):
        parts = []
        for _ in range(rng.randint(1, 3)):
            inside = "".join(
                f"<{n}>{rng.choice('123xy')}</{n}>" for n in rng.choices("bcd", k=rng.randint(0, 5))
            )
            parts.append(f"<a x='{rng.choice('xyz')}'>{inside}</a>")
        assert_same(compiled, python, f"<r>{''.join(parts)}</r>")


def test_ranges_come_and_go() -> None:
    compiled, python = pair_of_matchers(Tuning())
    rng = random.Random(4)
    ids: list[int] = []
    for i in range(600):
        if ids and rng.random() < 0.45:
            gone = ids.pop(rng.randrange(len(ids)))
            compiled.remove(gone)
            python.remove(gone)
        else:
            op, bound = (
                rng.choice(["<", "<=", ">", ">=", "!=", "="]),
                rng.choice(["1", "2", "2.5", "0 div 0", "-1"]),
            )
            query = rng.choice([f"//a[@x {op} {bound}]", f"//a[. {op} {bound}]", f"/r/a[@x {op} {bound}][b]"])
            compiled.add(i, query)
            python.add(i, query)
            ids.append(i)
        if i % 3 == 0:
            value = rng.choice(["1", "2", "2.5", "3", "x", "", "-1"])
            assert_same(compiled, python, f"<r><a x='{value}'>{rng.choice(['', '2', '<b/>'])}</a></r>")


def test_damaged_flat_arrays_are_refused_or_harmless() -> None:
    """A checksum guards packs; what passes it all the same must not crash."""
    rng = random.Random(3)
    matcher = Matcher(lxml_oracle.NAMESPACES)
    matcher.add_many(enumerate(lxml_oracle.random_query(rng) for _ in range(60)))
    automaton = matcher.index.automaton
    assert isinstance(automaton, KernelAutomaton)
    code, strings, numbers = automaton.dump().queries
    message = lxml_oracle.random_document(rng, budget=25).encode()
    refused = 0
    for _ in range(400):
        damaged = code.copy()
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice([rng.randint(-5, 300), -1, 0])
        loaded = _kernel.Automaton(1_000_000, 500, 1_000, 1_000, True)
        try:
            loaded.load(
                damaged[: rng.choice([None, rng.randrange(len(code))])].tobytes(), strings, numbers.tobytes()
            )
        except ValueError as error:
            assert "damaged" in str(error)
            refused += 1
        loaded.match(message, None, True)
    assert refused > 100


@pytest.mark.parametrize("packs", [True, False], ids=["packed with the kernel", "packed in Python"])
def test_queries_that_nothing_matches_are_packed(packs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no parts, but slots, which are given back when they are unsubscribed."""
    with monkeypatch.context() as patch:
        if not packs:
            patch.setattr(index, "KERNEL", None)
        broker = Broker()
        broker.subscribe("made", "for $x in /a[false()] return <r>{$x}</r>")
        broker.subscribe("joined", "//a[false()]->x FOLLOWED BY{x=y, 10 s} //c->y")
        broker.subscribe("filter", "/a[false()]")
        packed = broker.pack()
    for loads in (True, False):
        with monkeypatch.context() as patch:
            if not loads:
                patch.setattr(index, "KERNEL", None)
            copy = Broker.unpack(packed)
        for id in ("made", "joined", "filter"):
            copy.unsubscribe(id)
        assert len(copy) == 0
