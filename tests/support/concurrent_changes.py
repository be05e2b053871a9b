"""Changes without end, for a process that is killed: `python -m tests.support.concurrent_changes file seed`.

Subscriptions come, change and go in groups, each time a group in one transaction: `g7-3` is the fourth of
group 7. All of a group have queries of the same version, which they name: `@v = '2'`.
"""

from __future__ import annotations

import random
import sys
from itertools import count
from pathlib import Path

from sapwood.relational import Plan, RelationalMatcher

MESSAGES = [
    "<a v='1' x='3'><b><c>5</c></b></a>",
    "<a v='2' x='7' y='1'><b><c>2</c></b><b><c>9</c></b></a>",
    "<z><a v='1'/><a v='2' x='5'><b/></a></z>",
]
SIZES = (1, 5, 40)
KINDS = [
    "//a[@v = '{v}']",
    "//a[@v = '{v}' and @x > {i}]",
    "//a[@v = '{v}' and @x > {i} and @x < {i}9]/b",
    "//a[@v = '{v}' and b/c = {i}]",
    "//a[@v = '{v}'][b[c > {i}]/c != 'n{g}']//c",
    "//a[@v = '{v}'][@x = {i} or b/c = {i} or @n{g}]",
    "//a[@v = '{v}'][not(@n{g})]",
    "//a[@v = '{v}' and @y = 1 and @x = 7 and b and b/c = 2 and b/c = 9 and b/c > 1 and b/c > {i}]",
]


def group(number: int, size: int, version: int) -> list[tuple[str, str]]:
    return [
        (f"g{number}-{i}", KINDS[i % len(KINDS)].format(g=number % 50, i=i, v=version)) for i in range(size)
    ]


def storm(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with RelationalMatcher(path, plan=rng.choice(list(Plan)), threads=1) as matcher:
        sizes = listed(matcher)
        print("ready", flush=True)
        for number in count(max(sizes, default=0) + 1):
            some = sorted(rng.sample(sorted(sizes), min(len(sizes), rng.randrange(4))))
            match rng.randrange(6):
                case 0 | 1 | 2:
                    size = rng.choice(SIZES)
                    matcher.add_many(group(number, size, rng.choice([1, 2])))
                    sizes[number] = size
                case 3:
                    put = [pair for one in some for pair in group(one, sizes[one], rng.choice([1, 2]))]
                    matcher.catalog.apply_changes(put=put)
                case 4:
                    matcher.remove(*(id for one in some for id, _ in group(one, sizes.pop(one), 1)))
                case 5:
                    list(matcher.match_many(MESSAGES))
                    if rng.random() < 0.3:
                        matcher.collect_garbage(rng.choice(list(Plan)))


def listed(matcher: RelationalMatcher) -> dict[int, int]:
    """Return the sizes of the subscribed groups."""
    sizes: dict[int, int] = {}
    for (id,) in matcher.connection.rows("SELECT id FROM subscription"):
        number, _, place = id.removeprefix("g").partition("-")
        sizes[int(number)] = max(sizes.get(int(number), 0), int(place) + 1)
    return sizes


if __name__ == "__main__":
    storm(Path(sys.argv[1]), int(sys.argv[2]))
