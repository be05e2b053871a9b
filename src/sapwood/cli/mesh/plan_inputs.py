"""What `sapwood mesh plan` reads: the tree, the subscriptions of sites, and a sample of messages."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from sapwood.cli.common.bounded_output import BoundedOutput
from sapwood.cli.common.console import note, report
from sapwood.cli.common.stored_filters import MOST_REPORTED, open_store
from sapwood.cli.mesh.mesh_files import read_tree
from sapwood.errors import ArgumentError, SapwoodError
from sapwood.input_files import LineError, read_messages, read_queries

if TYPE_CHECKING:
    from sapwood.mesh.planning.planned_subscription import PlannedSubscription
    from sapwood.mesh.planning.traffic_forecast import SampleMessage

_SQLITE_HEAD = b"SQLite format 3\0"
_SEED = 1


@dataclass(frozen=True, slots=True)
class SiteOption:
    """A site as it is given: its name, its parent, and where its subscriptions are."""

    name: str
    parent: str
    source: str


def parse_site(text: str) -> SiteOption:
    """Parse `NAME[:PARENT]=SOURCE`; raises ArgumentError."""
    head, sign, source = text.partition("=")
    name, _, parent = head.partition(":")
    if not (sign and name and source):
        raise ArgumentError(
            f"--site takes NAME=SOURCE or NAME:PARENT=SOURCE, not {text!r}; SOURCE is a store or queries"
        )
    return SiteOption(name.strip(), parent.strip(), source)


# -- the tree ----------------------------------------------------------------------------------------------


def find_tree(tree: Path | None, sites: Sequence[SiteOption], brokers: int | None) -> dict[str, str | None]:
    """Return, by site, its parent: as given, or else a star around the first one; raises ArgumentError."""
    if tree is not None:
        if brokers is not None:
            raise ArgumentError("--tree names all brokers: omit --brokers")
        parents = _read_settings(tree) if tree.is_dir() else read_tree([], tree)
        for site in sites:
            if site.parent:
                raise ArgumentError(f"--tree has the parent of {site.name!r}: omit ':{site.parent}'")
            if site.name not in parents:
                raise ArgumentError(
                    f"--site names {site.name!r}, which is not in the tree of {str(tree)!r}: "
                    f"{', '.join(parents)}"
                )
        _check_distinct(sites)
        return parents
    if sites:
        if any(site.parent for site in sites):
            return read_tree([f"{site.name}:{site.parent}" for site in sites], None)
        names = [site.name for site in sites]
    else:
        names = [f"b{number}" for number in range(1, (brokers or 0) + 1)]
    return read_tree([names[0], *[f"{name}:{names[0]}" for name in names[1:]]] if names else [], None)


def _check_distinct(sites: Sequence[SiteOption]) -> None:
    names = [site.name for site in sites]
    for name in names:
        if names.count(name) > 1:
            raise ArgumentError(f"the site {name!r} is there twice: put its queries into one file or folder")


def _read_settings(folder: Path) -> dict[str, str | None]:
    """Read the tree from the files of settings that `sapwood mesh init` has written."""
    lines = []
    for path in sorted(folder.glob("*/server.toml")):
        try:
            table = tomllib.loads(path.read_text("utf-8")).get("mesh", {})
        except (OSError, ValueError) as error:
            raise ArgumentError(f"the settings {str(path)!r} cannot be read: {error}") from None
        if "broker" in table:
            lines.append(f"{table['broker']}:{table.get('parent') or ''}")
    if not lines:
        raise ArgumentError(
            f"there are no settings of brokers in {str(folder)!r}: --tree takes a file with BROKER[:PARENT] "
            "in each line, or the folder that 'sapwood mesh init' has written"
        )
    return read_tree(lines, None)


# -- subscriptions -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class SubscriptionReader:
    """Reads subscriptions, and reports those that are refused."""

    tenant: str
    namespaces: Mapping[str, str]
    """for queries in files; a store has its own"""
    refusals: BoundedOutput[[str, str]] = field(
        default_factory=lambda: BoundedOutput(
            MOST_REPORTED, report, lambda rest: note(f"{rest} subscriptions were refused")
        )
    )

    def read(self, source: str) -> Iterator[PlannedSubscription]:
        """Yield the active subscriptions of a store, or of a file or folder of queries."""
        return self.read_store(source) if is_store(source) else self.read_files(source)

    def read_store(self, location: str) -> Iterator[PlannedSubscription]:
        """Yield the active subscriptions of a store."""
        with open_store(location, command="sapwood mesh plan", tenant=self.tenant) as store:
            prefixes = store.namespaces
            for each in store.subscriptions(active=True):
                place = f"subscription {each.id}"
                yield from self._plan(
                    place, each.id, each.query, each.subscriber, each.streams, prefixes, each.language
                )

    def read_files(self, path: str) -> Iterator[PlannedSubscription]:
        """Yield the active queries of a file or folder."""

        def refuse(error: LineError) -> None:
            self.refusals.add(f"{error.path}:{error.line}", error.reason)

        for each in read_queries(path, refuse, allow_streams=True):
            if each.active is not False:
                yield from self._plan(
                    each.place,
                    str(each.id),
                    each.text,
                    each.subscriber or "",
                    each.streams or (),
                    self.namespaces,
                    each.language,
                )

    def _plan(
        self,
        place: str,
        id: str,
        query: str,
        subscriber: str,
        streams: tuple[str, ...],
        namespaces: Mapping[str, str],
        language: str | None,
    ) -> Iterator[PlannedSubscription]:
        from sapwood.mesh.planning.planned_subscription import plan_subscription

        try:
            yield plan_subscription(id, query, subscriber, streams, namespaces, language)
        except SapwoodError as error:
            self.refusals.add(place, str(error))


def is_store(source: str) -> bool:
    """Return whether a source is a store: a URL, or a file of SQLite."""
    if "://" in source:
        return True
    path = Path(source)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE_HEAD)) == _SQLITE_HEAD


# -- messages ----------------------------------------------------------------------------------------------


def read_sample(sources: Iterable[str], sites: Iterable[str], limit: int) -> tuple[list[SampleMessage], int]:
    """Return messages of files and folders, and how many there are; beyond a limit, a random part of them.

    A source `SITE=PATH` has messages that are published at that site.
    """
    from sapwood.mesh.planning.traffic_forecast import SampleMessage

    random = Random(_SEED)  # so that the same files give the same forecast
    known = set(sites)
    kept: list[SampleMessage] = []
    seen = 0
    for source in sources:
        head, sign, path = source.partition("=")
        site = head if sign and head in known else None
        for message in read_messages([path if site is not None else source]):
            made = SampleMessage(message.body, site, message.name)
            if len(kept) < limit:
                kept.append(made)
            elif (place := random.randrange(seen + 1)) < limit:
                kept[place] = made
            seen += 1
    return kept, seen


def parse_publishers(given: Sequence[str]) -> dict[str, float]:
    """Parse `SITE` and `SITE=WEIGHT`; raises ArgumentError."""
    publishers: dict[str, float] = {}
    for text in given:
        site, sign, weight = text.partition("=")
        try:
            publishers[site] = float(weight) if sign else 1.0
        except ValueError:
            raise ArgumentError(
                f"--published-at takes SITE or SITE=WEIGHT, such as basel=3, not {text!r}"
            ) from None
    return publishers
