"""Random documents and paths that often meet: few names, which nest in one another and in themselves."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from sapwood.engine.message.document import Document
from sapwood.lang.fwr.model import Transformation
from tests.support.cases.transforms import Graph, query

RANDOMS = st.integers(0, 2**32).map(Random)
"""by seed: where hypothesis makes every choice, documents are too small for streams to be out of order"""

_VALUES = ["", "1", "2", "x"]
_COMPARISONS = ["", "", " = 1", " = 'x'", " != 2", " > 1"]
_RARE = ["b or @x = 1", "not(a)", "1", "last()", "position() < 3", ". = '1'", "text() = 2", "b[@y]/c", "*[2]"]
_RARE += ["string(b) = '1'", "string(.//d) = 'x'", "string(.//e) = '1'", "self::a"]
_ENDS = ["", "", "", "/@x", "/text()", "//text()", "[@x = 1]", "[1]", " | /a", " | //b/c"]


def element_graph(rng: Random) -> Graph:
    """Layers of elements, those of one layer perhaps on a loop, so that each condition has its chance."""
    layers = {"a": "abcde", "b": "bcde", "c": "bcde", "d": "de", "e": "de"}
    return Graph("a", {n: tuple(c for c in below if rng.random() < 0.5) for n, below in layers.items()})


def document(rng: Random, graph: Graph, budget: int = 30) -> str:
    return _element(rng, graph, graph.root, 8, [budget])


def _element(rng: Random, graph: Graph, name: str, levels: int, left: list[int]) -> str:
    left[0] -= 1
    attributes = "".join(f' {n}="{rng.choice(_VALUES)}"' for n in "xy" if rng.random() < 0.3)
    content = rng.choice(_VALUES)
    for _ in range(rng.randint(1, 3)):
        if graph.children[name] and levels > 1 and left[0] > 0:
            content += _element(rng, graph, rng.choice(graph.children[name]), levels - 1, left)
            content += rng.choice(_VALUES)
    return f"<{name}{attributes}>{content}</{name}>"


def path_to_some(rng: Random, document: Document) -> str:
    """A path that reaches some element of the document, perhaps with `//` over levels, and with `*`."""
    element = rng.randrange(1, len(document))
    names: list[str] = []
    while element:
        names.append(document.names[element])
        element = document.parents[element]
    text, skipped = "", False
    for level in range(len(names) - 1, -1, -1):
        if level and rng.random() < 0.25:
            skipped = True
            continue
        text += "//" if skipped or rng.random() < 0.2 else "/"
        text += "*" if rng.random() < 0.12 else names[level]
        skipped = False
    return text


def navigation(rng: Random, most: int) -> str:
    return "".join(
        rng.choice(["/", "//"]) + rng.choice("abbcccddddeeee*") for _ in range(rng.randint(1, most))
    )


def binding(rng: Random, document: Document) -> str:
    """A path with predicates here and there, more of them at its end."""
    text = path_to_some(rng, document) if rng.random() < 0.7 else navigation(rng, 3)
    cut = rng.randint(1, len(text))
    while cut < len(text) and text[cut] != "/":
        cut += 1
    within = f"[{_predicate(rng)}]" if rng.random() < 0.3 else ""
    at_end = "".join(f"[{_predicate(rng)}]" for _ in range(rng.choice([0, 1, 1, 2])))
    start = text[:cut]
    return (start + within if not start.endswith("/") else start) + text[cut:] + at_end


def _predicate(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.55:
        below = navigation(rng, 2) + rng.choice(["", "", "/@x", "/text()", "//text()"])
        return ("." + below if below.startswith("//") else below[1:]) + rng.choice(_COMPARISONS)
    return "@x" + rng.choice(_COMPARISONS) if kind < 0.8 else rng.choice(_RARE)


def hole(rng: Random) -> str:
    return rng.choice(["", "/@x"]) if rng.random() < 0.2 else navigation(rng, 2) + rng.choice(_ENDS)


def transformation(rng: Random, document: Document) -> Transformation:
    return query(binding(rng, document), *(hole(rng) for _ in range(rng.randint(0, 3))))
