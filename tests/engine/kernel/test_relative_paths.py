"""Relative paths that are followed in C reach what those in Python do."""

from __future__ import annotations

from random import Random

import pytest

from sapwood.engine.automaton.automaton import Automaton
from sapwood.engine.automaton.path_trie import DESCENDANT
from sapwood.engine.limits import Limits, Tuning
from sapwood.engine.message.ancestry import Ancestry
from sapwood.engine.message.message_reader import Message
from sapwood.lang.pattern import ANY_NAMESPACE
from tests.support.compiled_kernel import compiled_kernel

compiled_kernel()
from sapwood.engine.kernel.kernel_automaton import KernelAutomaton  # noqa: E402  # which needs the kernel

NAMES = ("a", "b", "c", "u}a", "u}b", "v}a")
TESTS = (*NAMES, "*", "u}*", f"{ANY_NAMESPACE}}}a")


def random_document(rng: Random, elements: int, deepest: int) -> bytes:
    """Return a message with elements of few names, in two namespaces and none."""
    parts: list[str] = []
    tags: list[str] = []
    for _ in range(elements):
        while tags and (len(tags) >= deepest or rng.random() < 0.4):
            parts.append(f"</{tags.pop()}>")
        if not tags and parts:
            break
        tags.append(rng.choice(NAMES).replace("}", ":"))
        parts.append(f"<{tags[-1]}>")
    parts += [f"</{tag}>" for tag in reversed(tags)]
    return "".join(parts).replace(">", " xmlns:u='u' xmlns:v='v'>", 1).encode()


def random_path(rng: Random) -> tuple[str, ...]:
    symbols: list[str] = []
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.3:
            symbols.append(DESCENDANT)
        symbols.append(rng.choice(TESTS))
    return tuple(symbols)


class BothAutomata:
    """Relative paths in both automata, under the same numbers."""

    def __init__(self, cache: int = 1_000_000) -> None:
        tuning = Tuning(cache=cache)
        self._automata = Automaton(Limits(), tuning), KernelAutomaton(Limits(), tuning)
        self.numbers: list[int] = []

    def add(self, path: tuple[str, ...]) -> None:
        in_python, in_c = (automaton.add_relative_path(path) for automaton in self._automata)
        assert in_python == in_c
        self.numbers.append(in_c)

    def remove(self, number: int) -> None:
        for automaton in self._automata:
            automaton.remove_relative_path(number)
        self.numbers.remove(number)

    def assert_same(self, message: bytes, rng: Random) -> int:
        """Return how many elements are reached, and fail unless both agree."""
        in_python, in_c = self._automata
        expected_on = in_python.read(Message(message), False, False)
        document = in_c.read(Message(message), False, False)
        inside = rng.random() < 0.5
        elements = range(len(document))
        starts = sorted(rng.sample(elements, rng.randint(0, len(elements))))
        expected = in_python.relative_paths.reached(expected_on, Ancestry(expected_on), starts, inside)
        reached = in_c.reached(document, starts, inside)
        assert reached is not None
        for number in {*self.numbers, 10_000}:
            for element in elements:
                assert reached.of(number, element) == expected.of(number, element)
        return sum(len(reached.of(number, e)) for number in self.numbers for e in elements)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("cache", [0, 1_000_000])
def test_both_reach_the_same_elements(seed: int, cache: int) -> None:
    rng = Random(seed)
    both = BothAutomata(cache)
    for _ in range(rng.randint(10, 40)):
        both.add(random_path(rng))
    reached = 0
    for _ in range(15):
        reached += both.assert_same(random_document(rng, 40, rng.randint(1, 20)), rng)
        if rng.random() < 0.5:
            both.add(random_path(rng))
        if rng.random() < 0.5 and both.numbers:
            both.remove(rng.choice(both.numbers))
    assert reached


def test_paths_are_followed_in_a_message_with_a_document_type() -> None:
    both = BothAutomata()
    for path in (("b",), (DESCENDANT, "b"), ("*", "b")):
        both.add(path)
    message = b"<!DOCTYPE a [<!ENTITY e '<b><b/></b>'>]><a>&e;<c>&e;</c></a>"
    assert both.assert_same(message, Random(1)) > 0


def test_deep_documents_are_left_to_the_evaluator() -> None:
    automaton = KernelAutomaton(Limits(), Tuning())
    automaton.add_relative_path(("a",))
    for depth, is_reached in ((63, True), (64, False), (400, False)):
        document = automaton.read(Message("<a>" * depth + "</a>" * depth), False, False)
        reached = automaton.reached(document, [0, 1], inside=True)
        assert (reached is not None) == is_reached
    shallow = automaton.read(Message("<a><a/></a>"), False, False)
    reached = automaton.reached(shallow, [1], inside=False)
    assert reached is not None
    assert reached.of(0, 1) == [2]


def test_nothing_is_reached_without_paths() -> None:
    automaton = KernelAutomaton(Limits(), Tuning())
    document = automaton.read(Message("<a><a/></a>"), False, False)
    reached = automaton.reached(document, [1], inside=False)
    assert reached is not None
    assert reached.of(0, 1) == []


def test_elements_have_to_be_those_of_the_document() -> None:
    automaton = KernelAutomaton(Limits(), Tuning())
    automaton.add_relative_path(("a",))
    document = automaton.read(Message("<a><a/></a>"), False, False)
    for starts in ([3], [2, 1], [-1]):
        with pytest.raises((ValueError, OverflowError)):
            automaton.reached(document, starts, inside=False)
