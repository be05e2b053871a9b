"""Frames and controls as bytes: a version and a checksum in front, and MessagePack.

    payload     epoch, number of the first frame, frames, dictionaries, tested names, plans of projection,
                digests of tables and keys of routes
    message     source, number, table, floor, content
    content     tenant, stream, id, time, is unique, format, dictionary, body, skeleton, projection,
                hits
    skeleton    dictionary, tested names, bytes
    projection  plan, digest of the message as it was published
    hits        digest of a table, keys of routes, whether these are all
    plan        its identity, if the receiver has it, and otherwise its encoding in a list
    control     kind, fields

Dictionaries, tested names, plans, digests and keys are listed once in a payload, and frames have their places
in these lists. What comes from another site may be anything: what is not exactly as it should be is a
WireError, and nothing of it is used. A receiver that does not know a version says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import msgpack  # type: ignore[import-untyped, unused-ignore]

from sapwood.errors import RouteError, SapwoodError
from sapwood.mesh.core.frames import (
    Ack,
    Beat,
    ConfirmFrame,
    Control,
    Epoch,
    Frame,
    Intervals,
    MessageFrame,
    MessageKey,
    Nack,
    NeedTable,
    Open,
    Opened,
    Refused,
    Route,
    TableFrame,
)
from sapwood.mesh.projection.pruning_plan import PruningPlan, decode_plan
from sapwood.mesh.routing.route import decode_route, encode_route
from sapwood.mesh.wire.bodies.body_format import BodyError, BodyFormat, EncodedBody, decode_body
from sapwood.mesh.wire.bodies.dictionary_controls import (
    DictionaryControl,
    HaveDictionary,
    LackDictionary,
    NeedDictionary,
    OfferDictionary,
    OfferPlan,
)
from sapwood.mesh.wire.bodies.wire_dictionary import WireDictionary
from sapwood.mesh.wire.message_content import MOST_HITS, Hits, MessageContent, Projection
from sapwood.mesh.wire.skeletons.skeleton import Skeleton, SkeletonError, TestedNames, decode_tested

VERSION = 4
_CHECKED = 5
"""bytes in front: the version, and the checksum of what follows"""
_MESSAGE, _TABLE, _CONFIRM = 0, 1, 2
_KEY_BYTES = _DIGEST_BYTES = 16
_NO_DICTIONARIES: Mapping[bytes, WireDictionary] = {}
_NO_PLANS: Mapping[bytes, PruningPlan] = {}
_INTEGERS = frozenset((int,))
T = TypeVar("T")
_decode_tested = lru_cache(maxsize=256)(decode_tested)  # since payloads repeat them


class WireError(SapwoodError):
    """Raised for bytes that are no payload or control of a broker, or of another version."""


class UnknownDictionary(WireError):
    """Raised for a payload that cannot be read without dictionaries or plans that are not here."""

    def __init__(self, identities: Sequence[bytes]) -> None:
        self.identities = tuple(identities)
        names = ", ".join(identity.hex() for identity in identities)
        super().__init__(f"frames that need the dictionary or plan {names}")


class Payload(NamedTuple):
    """Consecutive frames of a link."""

    epoch: Epoch
    first: int
    frames: list[Frame]


# -- payloads -----------------------------------------------------------------------------------------------


class _PayloadWriter:
    """Collects what the frames of a payload have in common."""

    def __init__(self) -> None:
        self.dictionaries: dict[bytes, int] = {}
        self.tested: dict[TestedNames, int] = {}
        self.plans: dict[bytes, tuple[int, PruningPlan]] = {}
        self.keys: dict[int, int] = {}

    def encode_frame(self, frame: Frame) -> list[object]:
        if isinstance(frame, MessageFrame):
            content = frame.content
            assert content is None or isinstance(content, MessageContent)
            fields = None if content is None else self._encode_content(content)
            return [_MESSAGE, *frame.key, frame.table, frame.floor, fields]
        if isinstance(frame, TableFrame):
            added = [encode_route(_own(route)) for route in frame.added]
            removed = [key.to_bytes(_KEY_BYTES, "big") for key in frame.removed]
            return [_TABLE, frame.version, added, removed, frame.begins, frame.ends, frame.is_open]
        return [_CONFIRM, tuple(frame.epoch), frame.version]

    def _encode_content(self, content: MessageContent) -> list[object]:
        tenant, stream, id, time, text, is_unique, encoded, skeleton, projection, hits = content
        if encoded is None:
            encoded = EncodedBody(BodyFormat.TEXT, None, text)
        place = self._place(encoded.dictionary)
        bones = None
        if skeleton is not None:
            names = self.tested.setdefault(skeleton.tested, len(self.tested))
            bones = [self._place(skeleton.dictionary), names, skeleton.data]
        moment = None if time is None else float(time)
        cut = None if projection is None else [self._place_plan(projection.plan), projection.original]
        data, met = encoded.data, None if hits is None else self._encode_hits(hits)
        return [tenant, stream, id, moment, is_unique, encoded.format.value, place, data, bones, cut, met]

    def _encode_hits(self, hits: Hits) -> list[object]:
        places = [self.keys.setdefault(key, len(self.keys)) for key in (hits.table, *hits.keys)]
        return [places[0], places[1:], hits.is_complete]

    def _place(self, dictionary: bytes | None) -> int | None:
        if dictionary is None:
            return None
        return self.dictionaries.setdefault(dictionary, len(self.dictionaries))

    def _place_plan(self, plan: PruningPlan) -> int:
        place, _ = self.plans.setdefault(plan.identity, (len(self.plans), plan))
        return place


def encode_payload(
    epoch: Epoch, first: int, frames: Sequence[Frame], is_shared: Callable[[bytes], bool] = lambda _: False
) -> bytes:
    """Return consecutive frames as bytes; those of messages have their content, encoded or as text.

    `is_shared` says whether the receiver has a plan of projection with an identity.
    """
    writer = _PayloadWriter()
    encoded = [writer.encode_frame(frame) for frame in frames]
    tested = [names.encoded for names in writer.tested]
    plans = [
        identity if is_shared(identity) else [plan.encoded] for identity, (_, plan) in writer.plans.items()
    ]
    keys = [key.to_bytes(_KEY_BYTES, "big") for key in writer.keys]
    return protect([tuple(epoch), first, encoded, list(writer.dictionaries), tested, plans, keys])


def _own(route: Route) -> Any:
    return route


def decode_payload(
    data: bytes,
    dictionaries: Mapping[bytes, WireDictionary] = _NO_DICTIONARIES,
    plans: Mapping[bytes, PruningPlan] = _NO_PLANS,
) -> Payload:
    """Return the frames in bytes; raises WireError, or UnknownDictionary if one or a plan is missing."""
    return _decode(data, lambda fields: _read_payload(fields, dictionaries, plans))


def _read_payload(
    fields: list[Any], dictionaries: Mapping[bytes, WireDictionary], plans: Mapping[bytes, PruningPlan]
) -> Payload:
    epoch, first, frames, named, tested, listed, keys = fields
    unknown = _find_unknown(_list(named), dictionaries)
    unknown += _find_unknown([plan for plan in _list(listed) if not isinstance(plan, list)], plans)
    if unknown:
        raise UnknownDictionary(unknown)
    reader = _PayloadReader(
        [dictionaries[identity] for identity in named],
        _read_tested(tested),
        [decode_plan(_bytes(*plan)) if isinstance(plan, list) else plans[plan] for plan in listed],
        [int.from_bytes(_key(key), "big") for key in _list(keys)],
    )
    return Payload(_epoch(epoch), _number(first), [reader.decode_frame(frame) for frame in _list(frames)])


def _find_unknown(identities: list[Any], known: Collection[bytes]) -> list[bytes]:
    return [identity for identity in identities if _bytes(identity) not in known]


def _read_tested(tested: Any) -> list[TestedNames]:
    return [_decode_tested(_bytes(names)) for names in _list(tested)]


class _PayloadReader:
    """Decodes frames, with what they have in common."""

    def __init__(
        self,
        dictionaries: Sequence[WireDictionary],
        tested: Sequence[TestedNames],
        plans: Sequence[PruningPlan],
        keys: Sequence[int],
    ) -> None:
        self._dictionaries = dictionaries
        self._tested = tested
        self._plans = plans
        self._keys = keys

    def decode_frame(self, fields: list[Any]) -> Frame:
        kind, *rest = _list(fields)
        if kind != _MESSAGE:
            return _decode_frame(kind, rest)
        source, number, table, floor, content = rest
        key = MessageKey(_text(source), _number(number))
        found = None if content is None else self._content(*content)
        is_partial = found is not None and found.projection is not None
        return MessageFrame(key, found, _integer(table), _number(floor), is_partial)

    def _content(
        self,
        tenant: Any,
        stream: Any,
        id: Any,
        time: Any,
        is_unique: Any,
        format: Any,
        place: Any,
        data: Any,
        bones: Any,
        cut: Any,
        met: Any,
    ) -> MessageContent:
        if time is not None and not (isinstance(time, float) and isfinite(time)):
            raise WireError(f"a time is a number, not {time!r}")
        dictionary = None if place is None else self._dictionaries[_number(place)]
        encoded = EncodedBody(
            BodyFormat(_number(format)), None if dictionary is None else dictionary.identity, _bytes(data)
        )
        if encoded.format.needs_dictionary != (dictionary is not None):
            raise WireError(f"a body that is {encoded.format.label} needs a dictionary, and others have none")
        body = decode_body(encoded, dictionary)
        skeleton = None
        if bones is not None:
            paths, names, parts = _list(bones)
            identity = self._dictionaries[_number(paths)].identity
            skeleton = Skeleton(identity, self._tested[_number(names)], _bytes(parts))
        projection = None
        if cut is not None:
            plan, original = _list(cut)
            if len(_bytes(original)) != _DIGEST_BYTES:
                raise WireError(f"a digest has {_DIGEST_BYTES} bytes, not {len(original)}")
            projection = Projection(self._plans[_number(plan)], original)
        is_plain = encoded.format is BodyFormat.TEXT
        return MessageContent(
            _text(tenant),
            _text(stream),
            _text(id),
            time,
            body,
            _flag(is_unique),
            None if is_plain else encoded,
            skeleton,
            projection,
            None if met is None else self._hits(*_list(met)),
        )

    def _hits(self, table: Any, places: Any, is_complete: Any) -> Hits:
        listed = self._keys
        keys = tuple([listed[place] for place in _list(places)])
        if not 0 < len(keys) <= MOST_HITS or len(set(keys)) < len(keys):
            raise WireError(f"1 to {MOST_HITS} routes that a message meets, each once, not {len(keys)}")
        if min(places) < 0 or not _INTEGERS.issuperset(map(type, places)):
            raise WireError("the places of routes are whole numbers that are not below 0")
        return Hits(self._keys[_number(table)], keys, _flag(is_complete))


def _decode_frame(kind: Any, rest: list[Any]) -> Frame:
    if kind == _TABLE:
        version, added, removed, begins, ends, is_open = rest
        return TableFrame(
            _number(version),
            tuple([decode_route(_bytes(route)) for route in _list(added)]),
            tuple([int.from_bytes(_key(key), "big") for key in _list(removed)]),
            _flag(begins),
            _flag(ends),
            _flag(is_open),
        )
    if kind == _CONFIRM:
        epoch, version = rest
        return ConfirmFrame(_epoch(epoch), _number(version))
    raise WireError(f"there is no frame of kind {kind!r}")


# -- controls -----------------------------------------------------------------------------------------------


def encode_control(control: Control | DictionaryControl) -> bytes:
    """Return a control as bytes."""
    kind = _KINDS.index(type(control))
    fields: list[object]
    if isinstance(control, OfferDictionary | OfferPlan):
        fields = [control.data]
    elif isinstance(control, HaveDictionary | NeedDictionary | LackDictionary):
        fields = [control.identity]
    elif isinstance(control, Open):
        fields = [tuple(control.epoch), control.needs_table]
    elif isinstance(control, Opened):
        fields = [tuple(control.epoch), control.received, dict(control.have), dict(control.floors)]
    elif isinstance(control, Ack):
        fields = [tuple(control.epoch), control.received, control.reset, dict(control.settled)]
    elif isinstance(control, Nack):
        fields = [tuple(control.epoch), control.expected]
    elif isinstance(control, Beat):
        digest = control.digest.to_bytes(_KEY_BYTES, "big")
        fields = [tuple(control.epoch), control.sent, control.version, digest, control.count]
        fields.append(dict(control.floors))
    else:
        fields = [tuple(control.epoch)]
    return protect([kind, fields])


_KINDS: list[type[Any]] = [
    Open,
    Opened,
    Refused,
    Ack,
    Nack,
    Beat,
    NeedTable,
    OfferDictionary,
    HaveDictionary,
    NeedDictionary,
    LackDictionary,
    OfferPlan,
]


def decode_control(data: bytes) -> Control | DictionaryControl:
    """Return the control in bytes; raises WireError."""
    return _decode(data, _read_control)


def _read_control(message: list[Any]) -> Control | DictionaryControl:
    kind, fields = message
    made = _KINDS[_number(kind)]
    if made in (OfferDictionary, OfferPlan, HaveDictionary, NeedDictionary, LackDictionary):
        told: DictionaryControl = made(*map(_bytes, _list(fields)))
        return told
    epoch, *rest = _list(fields)
    at = _epoch(epoch)
    if made is Open:
        return Open(at, _flag(*rest))
    if made is Opened:
        received, have, floors = rest
        return Opened(
            at, _number(received), {_text(s): _ranges(r) for s, r in have.items()}, _numbers(floors)
        )
    if made is Ack:
        received, reset, settled = rest
        return Ack(at, _number(received), _number(reset), _numbers(settled))
    if made is Nack:
        return Nack(at, _number(*rest))
    if made is Beat:
        sent, version, digest, count, floors = rest
        number = int.from_bytes(_key(digest), "big")
        return Beat(at, _number(sent), _integer(version), number, _number(count), _numbers(floors))
    control: Control = made(at)
    return control


# -- checks -------------------------------------------------------------------------------------------------


def protect(fields: list[object]) -> bytes:
    """Return fields as bytes, behind the version and a checksum."""
    packed: bytes = msgpack.packb(fields)
    return bytes((VERSION,)) + crc32(packed).to_bytes(4, "big") + packed


def _decode(data: bytes, read: Callable[[list[Any]], T]) -> T:
    if data and data[0] != VERSION:
        raise WireError(f"the other broker writes version {data[0]} of the format, this one {VERSION}")
    packed = memoryview(data)[_CHECKED:]
    if not packed or crc32(packed).to_bytes(4, "big") != data[1:_CHECKED]:
        raise WireError(f"{len(data):,} bytes were damaged on their way: their checksum is another one")
    try:
        return read(_list(msgpack.unpackb(packed, use_list=True, strict_map_key=False)))
    except (BodyError, SkeletonError) as error:
        raise WireError(f"a message cannot be read: {error}") from error
    except RouteError as error:
        raise WireError(f"a route or plan cannot be read: {error}") from error
    except (
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
        OverflowError,
        msgpack.UnpackException,
    ) as error:
        raise WireError(f"these {len(data):,} bytes are nothing that a broker sends: {error}") from error


def _epoch(value: Any) -> Epoch:
    return Epoch(*map(_number, _list(value)))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise WireError(f"a list is expected, not {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WireError(f"a text is expected, not {type(value).__name__}")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise WireError(f"bytes are expected, not {type(value).__name__}")
    return value


def _key(value: Any) -> bytes:
    if len(_bytes(value)) != _KEY_BYTES:
        raise WireError(f"a key has {_KEY_BYTES} bytes, not {len(value)}")
    return _bytes(value)


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"a whole number is expected, not {type(value).__name__}")
    return value


def _number(value: Any) -> int:
    if _integer(value) < 0:
        raise WireError(f"a number is expected that is not below 0, not {value}")
    return _integer(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WireError(f"true or false is expected, not {type(value).__name__}")
    return value


def _numbers(value: Mapping[Any, Any]) -> dict[str, int]:
    return {_text(source): _number(number) for source, number in value.items()}


def _ranges(value: Any) -> Intervals:
    ranges: list[tuple[int, int]] = []
    for first, last in _list(value):
        if _number(first) > _number(last) or (ranges and ranges[-1][1] >= first):
            raise WireError("ranges ascend")
        ranges.append((first, last))
    return tuple(ranges)
