"""The documents of `observation_workload`, and the value rows from which queries are derived."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple
from xml.sax.saxutils import escape

from sapwood.workload.dtd.dtd_reader import load_dtd
from sapwood.workload.dtd.model import Attribute, Choice, Dtd, Particle, Ref, Seq
from sapwood.workload.messages.value_distributions import ValuePool, pick

Draws = Callable[[], float]  # from [0, 1)
_Value = Callable[[Draws], str]

# -- values --------------------------------------------------------------------------------------------


def _one_of(values: Sequence[str] | str, skew: float = 0.9) -> _Value:
    """One of these, or of what stands between commas; the first are the most frequent."""
    pool = ValuePool(_listed(values) if isinstance(values, str) else values, skew)
    return lambda random: pool.draw(random())


def _number(low: float, high: float, decimals: int = 0, skew: float = 1.0) -> _Value:
    """A number; those near `low` are the more frequent, the higher the skew above 1."""
    span = high - low
    return lambda random: f"{round(low + span * random() ** skew, decimals) + 0.0:.{decimals}f}"  # never -0


def _joined(*parts: _Value | str) -> _Value:
    return lambda random: "".join([part if isinstance(part, str) else part(random) for part in parts])


def _prose(least: int, most: int, words: Sequence[str]) -> _Value:
    """From `least` to `most` words, with a space on either side: names in mark-up may follow or precede."""
    more = most - least + 1
    return lambda random: (
        f" {' '.join([pick(words, random()) for _ in range(least + int(random() * more))])} "
    )


def _listed(text: str) -> list[str]:
    return text.split(", ")


_SURNAMES = [
    start + end
    for end, start in product(
        _listed("er, berg, ov, son, i, stein, ley, ski, mann, ez, ton, eau, dahl, u, wood"),
        _listed(
            "Holm, Kel, Mart, O'Bri, Sand, Tan, Hav, Brod, Ros, Lind, Var, Petr, Walt, Green, Iv, Nor, Cast, "
            "Dub, Eck, Far, Gold, Hart, Jans, Korn, Lamb, Mor, Nag, Ost, Pol, Sch, Szab, Vill"
        ),
    )
]
_WORDS = _listed(
    "the, of, and, in, stars, the, of, for, with, observations, a, catalogue, from, data, are, magnitudes, "
    "is, to, positions, by, were, given, plates, measured, the, of, errors, spectra, system, all, which, "
    "mean, at, values, sources, fainter, brighter, than, standard, survey, objects, reduced, published, "
    "accuracy, northern, southern, sky, program, each, epoch, zone, known, identified, and, in, the, of"
)
_surname = _one_of(_SURNAMES, 0.7)
_object = _joined(_one_of("NGC , HD , M , IC , PSR J, SN 19, 3C , HR , Abell "), _number(1, 4_000, skew=2.0))
_keyword = _one_of(
    "photometry, radial velocities, proper motions, spectral types, double stars, variable stars, galaxies, "
    "parallaxes, clusters, radio sources, redshifts, infrared, x-rays, white dwarfs, quasars, nebulae, "
    "asteroids, abundances, magnetic fields, supernovae, polarization, pulsars, cepheids, eclipses, rotation"
)
_quantity = _one_of(
    "magnitude, right ascension, declination, parallax, proper motion, radial velocity, colour index, flux, "
    "spectral type, distance, period, position angle, separation, redshift, diameter, luminosity, epoch"
)
_manner = _one_of(
    "mean, corrected, apparent, observed, visual, photographic, standard error of, absolute, number of, "
    "source of, uncertain, weight of, total, relative"
)
_respect = _one_of(
    "at the epoch of the plate, in the V band, in the B band, for equinox 1950, as published, "
    "in the frame of the catalogue, of the brighter component, after reduction to the standard system"
)
_observatory = _joined(
    _one_of("Mount , Cape , Royal , Northern , Lake , High "), _one_of(_SURNAMES[:40]), " Observatory"
)

# By name, or by the parent's and its own where it means something else there; the DTD has the rest.
_VALUES = {
    "dataset/@id": _joined(_one_of("I, II, III, IV, V, VI, VII, J", 0.4), "-", _number(1, 900)),
    "title": _joined(
        _one_of("Catalogue of , A survey of , Photoelectric , New , Revised , UBV , An atlas of ", 0.6),
        _keyword,
        _one_of([" in ", " near ", " around ", " behind ", " towards "]),
        _object,
    ),
    "alias": _joined(_one_of("ADC , CDS , Cat. , GSC , SAO "), _number(1, 5_000)),
    "initial": _one_of(list("JMARDCHSPEGLWKTBFNVIOUYZ"), 0.6),
    "last": _surname,
    "affiliation": _observatory,
    "year": _number(1995, 1890, skew=2.5),
    "month": _number(1, 12),
    "day": _number(1, 28),
    "keywords/@list": _one_of("ADC, IAU, NASA STI, own"),
    "keyword": _keyword,
    "name": _joined(_observatory, " ", _number(1, 9, skew=3.0)),
    "aperture": _number(0.3, 6, 1, skew=2.0),
    "band/from": _number(1, 400),
    "band/to": _number(401, 2_000, skew=2.0),
    "sky/@epoch": _one_of("1950, 2000, 1900, 1975, 1855"),
    "ra/from": _number(0, 12, 1),
    "ra/to": _number(12.1, 24, 1),
    "dec/from": _number(-90, -1),
    "dec/to": _number(0, 90),
    "para": _prose(42, 132, _WORDS),
    "object": _object,
    "journal": _one_of(
        "Astrophys. J., Astron. J., Astron. & Astrophys., Mon. Not. R. Astron. Soc., Publ. Astr. Soc. Pac., "
        "Acta Astron., Astron. Nachr., Nature, Sov. Astron., Bull. Astron. Inst. Czech., Icarus, Observatory"
    ),
    "volume": _number(1, 320, skew=1.5),
    "page": _joined(_one_of(["", "L", "S"], 2.0), _number(1, 1_200, skew=1.5)),
    "table/@rows": _number(12, 90_000, skew=5.0),
    "group/name": _joined(_quantity, " ", _number(1, 9, skew=2.0)),
    "field/@unit": _one_of(
        "mag, arcsec, deg, h, km/s, mas/yr, d, mm, nm, Jy, K, pc, min, s, %, keV, mJy, yr"
    ),
    "field/name": _joined(
        _one_of("mag, RA, DE, pi, pm, RV, B-V, F, Sp, d, P, PA, z, diam, e_, n_, r_, u_, w_, f_"),
        _one_of(["", "V", "B", "1950", "U", "2000", "R", "1", "2", "K"]),
    ),
    "definition": _joined(_manner, " ", _quantity, " ", _respect),
    "range/from": _number(-20, 20, 1),
    "range/to": _number(20, 400, 1, skew=2.0),
    "missing": _one_of("-9, 99.9, -99, 0, 999"),
    "revision/@version": _number(1, 4, 1),
    "by": _surname,
    "note": _joined(_one_of("corrected , added , removed , checked "), _quantity, " ", _respect),
}

# -- documents -----------------------------------------------------------------------------------------

# How often what may repeat does, at most, in a document of middling size; a choice has no name.
_TIMES = {
    "alias": 3, "author": 5, "keyword": 8, "instrument": 3, "section": 3, "reference": 5, "table": 2,
    "revision": 4, "reference/author": 4, "abstract/para": 2, "section/": 3, "para/": 3, "table/": 7,
    "group/": 3,
}  # fmt: skip
_OPTIONAL = 0.6  # the share of elements and attributes that are there though they need not be
_NESTED = 2  # how often an element stands on one path, at most
_LONGEST = 60  # characters: nobody asks for a longer text as a whole
_NUMERIC = re.compile(r"-?\d+(\.\d+)?")


class Slot:
    """A node of the tree of tag paths, at which elements or values occur; it grows with the documents."""

    def __init__(self, dtd: Dtd, names: tuple[str, ...]) -> None:
        self.names = names
        self.element = dtd.elements.get(names[-1])  # None for an attribute or text
        self.depth = len(names) - (self.element is None)  # in elements
        self.rows: list[ObservationRow] = []  # each as often as it occurs
        self.ways: list[list[str]] = []  # the usual ones, by the depth of the ancestor one comes from
        self._dtd = dtd
        self._known: dict[str, ObservationRow] = {}
        self._below: dict[str, Slot] = {}

    @cached_property
    def draw(self) -> _Value:
        """The function that draws values for the place: from the table, or as the DTD allows."""
        owner = self.names[:-1] if self.names[-1] == "text()" else self.names
        known = _VALUES.get("/".join(owner[-2:])) or _VALUES.get(owner[-1])
        if known is not None:
            return known
        attributes = self._dtd.elements[owner[-2]].attributes
        return next(_one_of(a.enumeration) for a in attributes if owner[-1] == f"@{a.name}")

    def below(self, name: str) -> Slot:
        """The place of a child, of an attribute (`@id`) or of text (`text()`)."""
        if name not in self._below:
            self._below[name] = Slot(self._dtd, (*self.names, name))
        return self._below[name]

    def row(self, value: str) -> ObservationRow:
        """The row of a value. Equal values share it: they are far fewer than their occurrences."""
        if value not in self._known:
            self._known[value] = ObservationRow(self, value)
        self.rows.append(self._known[value])
        return self.rows[-1]

    def __iter__(self) -> Iterator[Slot]:
        """This place and all below."""
        yield self
        for place in self._below.values():
            yield from place


class ObservationRow:
    """A value at a tag path."""

    __slots__ = ("literal", "number", "place")

    def __init__(self, place: Slot, value: str) -> None:
        self.place = place
        self.number = float(value) if _NUMERIC.fullmatch(value) else None
        quote = "" if self.number is not None else '"' if "'" in value else "'"
        self.literal = f"{quote}{value}{quote}"


class ObservationNode(NamedTuple):
    """An element with several rows: the index of the first and their number."""

    place: Slot
    first_row: int
    rows: int
    first_number: int
    numbers: int
    within: int  # nodes, which follow this one


class ObservationDocument:
    """A message, and the rows from which queries are derived."""

    __slots__ = ("by_place", "nodes", "numbers", "rows", "text")

    def __init__(self) -> None:
        self.text = b""
        self.rows: list[ObservationRow] = []
        self.numbers: list[ObservationRow] = []  # those rows that are
        self.nodes: list[ObservationNode] = []
        self.by_place: dict[Slot, list[ObservationRow]] = {}

    def add(self, row: ObservationRow) -> None:
        """The next row, of all elements that are open."""
        self.rows.append(row)
        self.by_place.setdefault(row.place, []).append(row)
        if row.number is not None:
            self.numbers.append(row)

    def open(self, place: Slot) -> int:
        """Begin an element; `close` wants the number."""
        self.nodes.append(ObservationNode(place, len(self.rows), 0, len(self.numbers), 0, 0))
        return len(self.nodes) - 1

    def close(self, number: int) -> None:
        """End an element. One without two rows is no node, and then nothing in it was, so it is the last."""
        place, row, _, first_number, _, _ = self.nodes[number]
        rows, numbers = len(self.rows) - row, len(self.numbers) - first_number
        if rows < 2:
            self.nodes.pop()
        else:
            within = len(self.nodes) - 1 - number
            self.nodes[number] = ObservationNode(place, row, rows, first_number, numbers, within)


class ObservationWriter:
    """Writes documents that are valid against the DTD."""

    def __init__(self, random: Draws) -> None:
        dtd = load_dtd("observatory")
        self.root = Slot(dtd, (dtd.root,))
        self._random = random
        self._chunks: list[str] = []
        self._document = ObservationDocument()
        self._scale = 1.0

    def document(self) -> ObservationDocument:
        """The next one."""
        self._chunks, self._document = [], ObservationDocument()
        self._scale = 0.4 + 1.2 * self._random()  # some datasets are described at length, others are not
        self._element(self.root)
        self._document.text = "".join(self._chunks).encode()
        return self._document

    def _element(self, place: Slot) -> None:
        element, chunks = place.element, self._chunks
        assert element is not None
        number = self._document.open(place)
        chunks.append(f"<{element.name}")
        for attribute in element.attributes:
            self._attribute(place, attribute)
        chunks.append(">")
        if element.only_text:
            chunks.append(escape(self._value(place.below("text()"))))
        elif element.model is not None and element.has_text:
            self._mixed(place, element.model)
        elif element.model is not None:
            self._content(place, element.model)
        chunks.append(f"</{element.name}>")
        self._document.close(number)

    def _attribute(self, place: Slot, attribute: Attribute) -> None:
        if attribute.required or self._random() < _OPTIONAL:
            value = self._value(place.below(f"@{attribute.name}"))
            self._chunks.append(f' {attribute.name}="{escape(value)}"')

    def _value(self, place: Slot) -> str:
        """A value to write here, noted as a row."""
        value = place.draw(self._random)
        if len(value) <= _LONGEST:
            self._document.add(place.row(value))
        return value

    def _mixed(self, place: Slot, model: Particle) -> None:
        """Text around and between children; it is too long to be compared."""
        self._chunks.append(place.draw(self._random))
        for _ in range(self._times(place, model)):
            self._once(place, model)
            self._chunks.append(place.draw(self._random))

    def _content(self, place: Slot, particle: Particle) -> None:
        for _ in range(self._times(place, particle)):
            self._once(place, particle)

    def _once(self, place: Slot, particle: Particle) -> None:
        match particle:
            case Ref():
                self._element(place.below(particle.name))
            case Seq():
                for part in particle.parts:
                    self._content(place, part)
            case Choice():
                names = [part.name for part in particle.parts if isinstance(part, Ref)]
                fitting = [name for name in names if place.names.count(name) < _NESTED]
                self._element(place.below(pick(fitting, self._random() ** 2)))  # the first more often

    def _times(self, place: Slot, particle: Particle) -> int:
        occurs = particle.occurs
        if not occurs.repeats:
            return int(not occurs.optional or self._random() < _OPTIONAL)
        name = particle.name if isinstance(particle, Ref) else ""
        most = _TIMES.get(f"{place.names[-1]}/{name}") or _TIMES[name]
        return (not occurs.optional) + int(self._random() * self._scale * most)
