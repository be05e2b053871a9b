"""The bars of transformation: what sharing plans is worth, what a message costs, and what a change costs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from statistics import mean, median

from sapwood import Broker
from sapwood.bench.contenders import Contender, plan_each, shared
from sapwood.bench.report import RAW, Chart, Role
from sapwood.bench.setting import Bar, Experiment, details
from sapwood.bench.sources import transformations
from sapwood.bench.timing import Timing, clock, side_by_side
from sapwood.bench.transform_setting import MANY_VALUES, TransformSetting, book, compiled
from sapwood.bench.writing import writing_pass

MILLISECONDS = "milliseconds a message"
THESIS = "thesis: without parsing, Pentium III at 850 MHz"

_CURVES = (
    ("shared, until the last group", Role.SAPWOOD),
    ("shared, until all is written", Role.OTHER),
    ("a plan each, until the last group", Role.BASELINE),
    ("a plan each, until all is written", Role.TWIN),
)
# Tables 12 and 13, and the text.
_PUBLISHED_EACH = {10_000: 516, 20_000: 1111, 30_000: 1715, 40_000: 2344, 50_000: 2985}
_PUBLISHED_SHARED = {10_000: 105, 20_000: 156, 30_000: 212, 40_000: 264, 50_000: 317, 100_000: 472}


# -- sharing -------------------------------------------------------------------------------------------


def sharing(setting: TransformSetting) -> Iterator[str]:
    """Experiments 15 and 16: the shared network and one plan for each query, on the same messages."""
    scale, kind = setting.scale, book()
    chart = setting.chart(
        Chart(
            "sharing",
            "One network for all queries, or a plan for each",
            "distinct queries",
            MILLISECONDS,
            log_x=True,
            note=f"DTD {kind.dtd.name}; plans FWR, by query and DTD; {THESIS}",
            unit=" ms",
        )
    )
    sent = kind.messages(scale.messages, MANY_VALUES)
    asked = kind.queries(scale.shared_alone, values=MANY_VALUES)
    network, plans = shared(), plan_each(kind.dtd)
    before = 0
    for size in scale.sharing_sizes:
        yield f"loading {size:,} queries"
        new = compiled(asked[before:size])
        network.load(new)
        plans.load(new)
        yield f"{size:,} queries"
        timed = _add_points(setting, chart, size, [network, plans], sent)
        before = size
    _add_published(chart)
    _report_sharing(setting, before, timed, sent)
    del plans
    yield f"loading {len(asked):,} queries"
    network.load(compiled(asked[before:]))
    yield f"{len(asked):,} queries, shared"
    more, _ = _add_points(setting, chart, len(asked), [network], sent)
    setting.figure(
        "shared network, queries added to it",
        f"{len(asked):,} queries against {before:,}",
        more.milliseconds / timed[0].milliseconds,
        "times",
        milliseconds=round(more.milliseconds, 2),
        thesis_times=round(_PUBLISHED_SHARED[100_000] / _PUBLISHED_SHARED[50_000], 2),
    )


def _add_points(
    setting: TransformSetting, chart: Chart, size: int, ways: Sequence[Contender], sent: Sequence[bytes]
) -> list[Timing]:
    """Two curves for each way: until the last group, and until all is written."""
    passes = [partial(timed, sent) for way in ways for timed in (way.groups_pass, way.bodies_pass)]
    timings = side_by_side(passes, sent, least=setting.scale.rounds, warm_up=1)
    matched = round(ways[0].matched(sent), 1)
    for (label, role), timing in zip(_CURVES, timings, strict=False):
        found = details(timing, plans=len(ways[0].plans), matched=matched)
        chart.curve(label, role).add(size, timing.milliseconds, **found)
    return timings


def _report_sharing(
    setting: TransformSetting, size: int, timings: Sequence[Timing], sent: Sequence[bytes]
) -> None:
    groups, bodies, each_groups, each_bodies = timings
    for until, mine, other, bar in (
        ("until the last group", groups, each_groups, Bar(9, at_least=True)),
        ("until all is written", bodies, each_bodies, None),
    ):
        setting.figure(
            "a plan for each query, against the shared network",
            f"{size:,} queries, {until}",
            other.times(mine),
            "times",
            bar,
            shared_milliseconds=round(mine.milliseconds, 2),
            each_milliseconds=round(other.milliseconds, 1),
            messages=len(sent),
            thesis_times=round(_PUBLISHED_EACH[50_000] / _PUBLISHED_SHARED[50_000], 1),
        )


def _add_published(chart: Chart) -> None:
    for label, role, published in (
        ("thesis, shared", Role.PUBLISHED, _PUBLISHED_SHARED),
        ("thesis, a plan each", Role.PUBLISHED_BASELINE, _PUBLISHED_EACH),
    ):
        for size, milliseconds in published.items():
            chart.curve(label, role).add(size, milliseconds)


# -- the cost of a message -----------------------------------------------------------------------------


def cost(setting: TransformSetting) -> Iterator[str]:
    """Publishing, but for the writing of results, where about one query in a hundred makes something."""
    scale = setting.scale
    if setting.nitf is not None:
        # The published messages have twenty values.
        source = setting.nitf
        asked = transformations(source.dtd, scale.cost_queries, binding_depth=2, values=20)
        sent = source.messages(scale.cost_messages)
        yield from _cost(setting, "published NITF messages", asked, sent, promised=True)
    kind = book()
    asked = kind.queries(scale.cost_queries, predicates=2, values=25)
    sent = kind.messages(scale.cost_messages, values=25)
    yield from _cost(setting, f"DTD {kind.dtd.name}", asked, sent, promised=False)


def _cost(
    setting: TransformSetting, name: str, asked: Sequence[str], sent: Sequence[bytes], promised: bool
) -> Iterator[str]:
    workload = f"{len(asked):,} queries, {name}"
    yield f"loading {workload}"
    network = shared()
    network.load(compiled(asked))
    with Broker() as broker:
        broker.subscribe_many(enumerate(asked))
        yield workload
        passes = [partial(_publish_pass, broker, sent), partial(writing_pass, network, sent)]
        publishing, writing = side_by_side(passes, sent, least=setting.scale.cost_rounds, warm_up=2)
        passed = mean(len(broker.publish(message)) for message in sent)
    share = {"matched": round(passed, 1), "share": round(passed / len(asked), 4)}
    bar = Bar(15, promised=promised)
    rest = publishing.without(writing)
    setting.figure("publishing, but for writing", workload, rest.multiple, RAW, bar, **details(rest))
    setting.figure("publishing", workload, publishing.multiple, RAW, None, **details(publishing, **share))
    setting.figure("writing results", workload, writing.multiple, RAW, None, **details(writing))


def _publish_pass(broker: Broker, messages: Sequence[bytes]) -> float:
    start = clock()
    for message in messages:
        len(broker.publish(message))
    return clock() - start


# -- queries that come and go --------------------------------------------------------------------------


def adding(setting: TransformSetting) -> Iterator[str]:
    """The same queries added to few and to many, and removed again; between messages, so all is warm."""
    scale, kind = setting.scale, book()
    few, many = scale.adding_sizes
    asked = kind.queries(scale.arriving + many, values=MANY_VALUES)
    arriving, population = asked[: scale.arriving], asked[scale.arriving :]
    sent = kind.messages(50, MANY_VALUES)
    timed: list[Changes] = []
    for size in scale.adding_sizes:
        yield f"loading {size:,} queries"
        with Broker() as broker:
            broker.subscribe_many(enumerate(population[:size]))
            yield f"queries that come to {size:,}, and go"
            _publish_pass(broker, sent)
            _publish_pass(broker, sent)
            timed.append(_come_and_go(broker, arriving, sent))
    least, most = timed
    for measure, among_few, among_many in (
        ("adding a query", least.adding, most.adding),
        ("removing a query", least.removing, most.removing),
    ):
        setting.figure(
            measure,
            f"{many:,} queries against {few:,}",
            median(among_many) / median(among_few),
            "times",
            5,
            few_microseconds=round(median(among_few), 1),
            many_microseconds=round(median(among_many), 1),
            many_mean_microseconds=round(mean(among_many), 1),
            many_highest_microseconds=round(max(among_many), 1),
            changes=len(arriving),
        )
    for size, changes in zip(scale.adding_sizes, timed, strict=True):
        setting.figure(
            "the message right after a query came",
            f"{size:,} queries, against it once more",
            median(after / quiet for after, quiet in zip(changes.after, changes.quiet, strict=True)),
            "times",
            after_microseconds=round(median(changes.after), 1),
            quiet_microseconds=round(median(changes.quiet), 1),
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """Microseconds of each change, and of messages."""

    adding: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    """the first message after a query was added, which pays for what was put off"""
    removing: list[float] = field(default_factory=list)
    quiet: list[float] = field(default_factory=list)
    """the same message when nothing has changed"""


def _come_and_go(broker: Broker, arriving: Sequence[str], sent: Sequence[bytes]) -> Changes:
    changes = Changes()
    gc.collect()
    for query, message in zip(arriving, cycle(sent), strict=False):
        changes.adding.append(_microseconds(partial(broker.subscribe, "new", query)))
        changes.after.append(_microseconds(partial(broker.publish, message)))
        changes.removing.append(_microseconds(partial(broker.unsubscribe, "new")))
        len(broker.publish(message))
        changes.quiet.append(_microseconds(partial(broker.publish, message)))
    return changes


def _microseconds(work: Callable[[], object]) -> float:
    start = clock()
    work()
    return (clock() - start) * 1e6


EXPERIMENTS = (
    Experiment("sharing", "one network against a plan for each query (experiments 15, 16)", sharing),
    Experiment("cost", "what publishing a message costs", cost),
    Experiment("adding", "adding and removing a query, among few and many", adding),
)
