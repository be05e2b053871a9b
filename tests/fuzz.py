"""Explores with fresh seeds what the tests look at with fixed ones: `make fuzz`, or

    python -m tests.fuzz [match|reading|transform|join|tables|readers …] [--seconds 300] [--answers 2000000]
    python -m tests.fuzz match --seed 1234 --rounds 1       a round that failed, again

A round draws queries and messages from its seed alone and compares every answer with the oracle's: lxml,
Saxon, pyexpat, all tuples of messages one by one, or the automaton. The first difference ends the run, and is
printed with the line that replays it. The readers of the compiled kernel are left out where it is not built.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count, cycle
from os import cpu_count
from random import Random, SystemRandom
from time import monotonic
from typing import NamedTuple

from sapwood import Matcher
from tests.engine import test_against_lxml
from tests.engine.fallback import test_disagreements
from tests.join import test_against_oracle
from tests.support.generators.disagreements import random_disagreement
from tests.support.generators.join_strategies import random_history, random_likes
from tests.support.generators.message_mutations import mutants, real_messages
from tests.support.generators.transform_strategies import random_document, random_family
from tests.support.oracles import lxml_oracle


class Tally(NamedTuple):
    """How many answers were compared, and how many of them were positive."""

    answers: int
    positive: int


def match(rng: Random) -> Tally:
    """XPath against lxml, in one matcher, with one optimisation off at times."""
    tuning = rng.choice(["everything on", *test_against_lxml.TUNINGS])
    native = rng.random() < 0.3
    queries = [lxml_oracle.random_query(rng, native) for _ in range(60)]
    tally = test_against_lxml.Tally()
    with Matcher(lxml_oracle.NAMESPACES, tuning=test_against_lxml.TUNINGS[tuning]) as matcher:
        matcher.add_many(enumerate(queries))
        for _ in range(12):
            message: str | bytes = lxml_oracle.random_document(rng, budget=rng.choice([10, 25, 60]))
            if rng.random() < 0.3:
                message = lxml_oracle.random_message(rng, str(message))
            tree = lxml_oracle.parse(message, defaults=True)
            wanted = [test_against_lxml.answer_of(tree, query) for query in queries]
            test_against_lxml.compare_answers(matcher, tuning, message, queries, wanted, tally)
    return Tally(tally.answers, tally.positive)


def reading(rng: Random) -> Tally:
    """Messages that expat and libxml2 read otherwise: refined queries against native ones."""
    with test_disagreements.asked() as matcher:
        messages = [random_disagreement(rng) for _ in range(100)]
        accepted = sum(test_disagreements.is_answered_alike(matcher, message) for message in messages)
    return Tally(accepted * len(test_disagreements.TWINS), accepted)


def transform(rng: Random) -> Tally:
    """For-where-return queries against Saxon, in all tunings."""
    from tests.transform import test_against_saxon

    families = [random_family(rng, rng.randint(1, 3), rng.random() < 0.5) for _ in range(3)]
    tally = test_against_saxon.Tally()
    documents = [random_document(rng) for _ in range(3)]
    test_against_saxon.compare_all([query for family in families for query in family], documents, tally)
    return Tally(tally.answers, tally.positive)


def join(rng: Random) -> Tally:
    """Histories of subscriptions and messages against all tuples of messages, one query at a time."""
    history = random_history(rng, messages=12, queries=6) if rng.random() < 0.6 else random_likes(rng)
    wanted = list(test_against_oracle.told_by_oracle(history))
    tally = test_against_oracle.Tally()
    for tuning in test_against_oracle.TUNINGS:
        test_against_oracle.compare(history, wanted, tuning)
        tally.add(wanted)
    answers = len(wanted) * 6 * len(test_against_oracle.TUNINGS)
    return Tally(answers, tally.by_blocks.total())


def tables(rng: Random) -> Tally:
    """Subscriptions in tables against the automaton, for all plans."""
    from tests.support.oracles.relational_agreement import assert_alike

    queries = list(dict.fromkeys(lxml_oracle.random_query(rng, rng.random() < 0.7) for _ in range(80)))
    messages: list[str | bytes] = [lxml_oracle.random_document(rng) for _ in range(10)]
    positive = assert_alike(queries, messages, lxml_oracle.NAMESPACES, batch=rng.choice([3, 100]))
    return Tally(len(queries) * len(messages), positive)


def readers(rng: Random) -> Tally:
    """Mutated messages, read by the compiled kernel and by pyexpat; the tokeniser reads the positive ones."""
    from tests.support.oracles.expat_events import assert_alike, random_limits

    messages = mutants(rng, 3_000, real_messages(largest=100_000 if rng.random() < 0.1 else 8_000))
    return Tally(3_000, sum(assert_alike(message, random_limits(rng)) for message in messages))


TARGETS: dict[str, Callable[[Random], Tally]] = {
    "match": match, "reading": reading, "transform": transform, "join": join, "tables": tables,
}  # fmt: skip
if find_spec("sapwood.engine.kernel._kernel") is not None:
    TARGETS["readers"] = readers


@dataclass(frozen=True)
class Round:
    target: str
    seed: int

    def __str__(self) -> str:
        return f"python -m tests.fuzz {self.target} --seed {self.seed} --rounds 1"


def run(each: Round) -> Tally:
    return TARGETS[each.target](Random(each.seed))


def explore(rounds: Iterator[Round], enough: Callable[[Counter[str]], bool]) -> tuple[Counter[str], int]:
    """Runs rounds on all cores until there is enough or one fails: what was compared, and the exit status."""
    totals: Counter[str] = Counter()
    running: dict[Future[Tally], Round] = {}
    told = monotonic()
    with ProcessPoolExecutor(cpu_count()) as pool:
        while True:
            while len(running) < 2 * (cpu_count() or 1) and not enough(totals):
                upcoming = next(rounds, None)
                if upcoming is None:
                    break
                running[pool.submit(run, upcoming)] = upcoming
            if not running:
                return totals, 0
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                each = running.pop(future)
                error = future.exception()
                if error is not None:
                    pool.shutdown(cancel_futures=True)
                    print(f"\n{type(error).__name__}: {error}\n\nagain: {each}", flush=True)
                    return totals, 1
                totals["answers"] += future.result().answers
                totals["positive"] += future.result().positive
                totals[f"rounds of {each.target}"] += 1
            if monotonic() - told > 15:
                told = monotonic()
                print(summary(totals), file=sys.stderr, flush=True)


def summary(totals: Counter[str]) -> str:
    parts = ", ".join(f"{n:,} {name}" for name, n in totals.items() if name.startswith("rounds"))
    return f"{totals['answers']:,} answers compared, {totals['positive']:,} positive ({parts})"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=(__doc__ or "").partition(":")[0]
    )
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="all, if none is named")
    parser.add_argument("--seconds", type=float, help="how long to explore (default: 300)")
    parser.add_argument("--answers", type=int, help="how many answers to compare, instead of a time")
    parser.add_argument("--seed", type=int, help="of the first round; drawn afresh by default")
    parser.add_argument("--rounds", type=int, help="how many rounds, instead of a time")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else SystemRandom().randrange(2**32)
    seeds = range(seed, seed + options.rounds) if options.rounds else count(seed)
    targets = options.targets or list(TARGETS)
    rounds = (Round(target, each) for each, target in zip(seeds, cycle(targets)))
    end = monotonic() + (options.seconds or (float("inf") if options.answers or options.rounds else 300))

    def enough(totals: Counter[str]) -> bool:
        return monotonic() > end or (options.answers is not None and totals["answers"] >= options.answers)

    print(f"from seed {seed}", flush=True)
    totals, status = explore(rounds, enough)
    print(summary(totals) + ("" if status else ", no difference"), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
