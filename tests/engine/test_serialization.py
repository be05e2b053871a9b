"""Packs of other versions are refused before anything of them is unpickled."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from sapwood import Broker, Matcher
from sapwood.engine.serialization import PackError


def pack_in_format(number: int, content: bytes) -> bytes:
    return b"SAPWOOD-INDEX %d %08x\n%b" % (number, zlib.crc32(content), content)


OF_FORMER_LAYOUT = b"csapwood.engine.machine\nMachine\n."
"""a pickle that names a class by a module that no longer exists"""


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("kind", [Matcher, Broker])
def test_a_pack_of_the_former_layout_is_refused(number: int, kind: type[Matcher] | type[Broker]) -> None:
    with pytest.raises(PackError) as caught:
        kind.unpack(pack_in_format(number, OF_FORMER_LAYOUT))
    assert str(caught.value) == (
        f"the matcher was packed in format {number}, this version of Sapwood reads 7; "
        "make the pack again from the queries"
    )


def test_a_file_of_the_former_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(pack_in_format(3, OF_FORMER_LAYOUT))
    with pytest.raises(PackError, match=r"packed in format 3.*make the pack again"):
        Matcher.load(path)


def test_a_current_number_with_unknown_classes_is_refused() -> None:
    with pytest.raises(PackError, match=r"another version of Sapwood.*make the pack again"):
        Matcher.unpack(pack_in_format(7, OF_FORMER_LAYOUT))


def test_transformations_and_joins_match_after_unpacking() -> None:
    broker = Broker()
    broker.subscribe("filter", "//b[not(@x)]")
    broker.subscribe("transformation", "for $a in //a, $b in $a/b return <r>{$b}</r>")
    broker.subscribe("join", "//a->x FOLLOWED BY{x=y, 10 s} //c->y")
    message = "<a><b>1</b></a>"
    before = [(delivery.subscription, delivery.body) for delivery in broker.publish(message)]
    unpacked = Broker.unpack(Broker.unpack(broker.pack()).pack())
    assert [(delivery.subscription, delivery.body) for delivery in unpacked.publish(message)] == before
    assert len(before) == 2
