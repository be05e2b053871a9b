"""Variables several levels below one another, as orders have lines, and lines have parts."""

from __future__ import annotations

import pytest

from sapwood import Broker, Tuning

ORDER = """<order><customer>Ann</customer>\
<line><sku>1</sku><qty>5</qty><part><no>7</no><of>x</of></part></line>\
<line><sku>2</sku><qty>6</qty><part><no>8</no><of>y</of></part><part><no>9</no><of>z</of></part></line>\
</order>"""
TUNINGS = [Tuning(), Tuning(share_joins=False), Tuning(share_values=False), Tuning(join_bundles=False)]
LINES = "S/order->{0}o[customer->{0}c][line->{0}l[sku->{0}s][qty->{0}q]]"
PARTS = "S/order->{0}o[customer->{0}c][line->{0}l[sku->{0}s][part->{0}p[no->{0}n][of->{0}f]]]"


def joined(pattern: str, names: str) -> str:
    equal = " AND ".join(f"a{name} = b{name}" for name in names)
    return f"{pattern.format('a')} FOLLOWED BY{{{equal}, INF}} {pattern.format('b')}"


@pytest.mark.parametrize("tuning", TUNINGS)
@pytest.mark.parametrize(
    ("query", "second", "meets"),
    [
        (joined(LINES, "csq"), ORDER, True),
        (joined(LINES, "csq"), ORDER.replace("<qty>6", "<qty>7"), True),
        (joined(LINES, "csq"), ORDER.replace("<qty>5", "<qty>0").replace("<qty>6", "<qty>5"), False),
        (joined(LINES, "csq"), ORDER.replace("Ann", "Bob"), False),
        (joined(PARTS, "csnf"), ORDER, True),
        (joined(PARTS, "csnf"), ORDER.replace("<of>y", "<of>x").replace("<of>z", "<of>x"), True),
        (joined(PARTS, "csnf"), ORDER.translate(str.maketrans("xyz", "yzx")), False),
        (joined(PARTS.replace("[part", "[.//part"), "csnf"), ORDER, True),
    ],
)
def test_lines_and_parts(query: str, second: str, meets: bool, tuning: Tuning) -> None:
    broker = Broker(tuning=tuning)
    broker.subscribe("q", query)
    broker.publish(ORDER, stream="S", time=1)
    assert bool(broker.publish(second, stream="S", time=2)) is meets
