"""Frames and controls as bytes: msgpack, with a version in front.

    payload     version, epoch, number of the first frame, frames
    control     version, kind, fields

What comes from another site may be anything: what is not exactly as it should be is a WireError, and nothing
of it is used. A later version may add formats of bodies; a receiver that does not know a version says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

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
from sapwood.mesh.routing.route import decode_route, encode_route
from sapwood.mesh.wire.message_content import MessageContent

VERSION = 1
_MESSAGE, _TABLE, _CONFIRM = 0, 1, 2
_KEY_BYTES = 16
T = TypeVar("T")


class WireError(SapwoodError):
    """Raised for bytes that are no payload or control of a broker, or of another version."""


class Payload(NamedTuple):
    """Consecutive frames of a link."""

    epoch: Epoch
    first: int
    frames: list[Frame]


# -- payloads -----------------------------------------------------------------------------------------------


def encode_payload(epoch: Epoch, first: int, frames: Sequence[Frame]) -> bytes:
    """Return consecutive frames as bytes; those of messages have their content."""
    encoded: bytes = msgpack.packb([VERSION, tuple(epoch), first, [_encode_frame(frame) for frame in frames]])
    return encoded


def _encode_frame(frame: Frame) -> list[object]:
    if isinstance(frame, MessageFrame):
        content = frame.content
        assert content is None or isinstance(content, MessageContent)
        fields = None if content is None else tuple(content)
        return [_MESSAGE, *frame.key, frame.table, frame.floor, fields]
    if isinstance(frame, TableFrame):
        added = [encode_route(_own(route)) for route in frame.added]
        removed = [key.to_bytes(_KEY_BYTES, "big") for key in frame.removed]
        return [_TABLE, frame.version, added, removed, frame.begins, frame.ends, frame.is_open]
    return [_CONFIRM, tuple(frame.epoch), frame.version]


def _own(route: Route) -> Any:
    return route


def decode_payload(data: bytes) -> Payload:
    """Return the frames in bytes; raises WireError."""
    return _decode(data, _read_payload)


def _read_payload(fields: list[Any]) -> Payload:
    _, epoch, first, frames = fields
    return Payload(_epoch(epoch), _number(first), [_decode_frame(frame) for frame in _list(frames)])


def _decode_frame(fields: list[Any]) -> Frame:
    kind, *rest = _list(fields)
    if kind == _MESSAGE:
        source, number, table, floor, content = rest
        key = MessageKey(_text(source), _number(number))
        return MessageFrame(
            key, None if content is None else _content(*content), _integer(table), _number(floor)
        )
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


def _content(tenant: Any, stream: Any, id: Any, time: Any, body: Any, is_unique: Any) -> MessageContent:
    if time is not None and not isinstance(time, float):
        raise WireError(f"a time is a number, not {time!r}")
    return MessageContent(_text(tenant), _text(stream), _text(id), time, _bytes(body), _flag(is_unique))


# -- controls -----------------------------------------------------------------------------------------------


def encode_control(control: Control) -> bytes:
    """Return a control as bytes."""
    kind = _KINDS.index(type(control))
    fields: list[object]
    if isinstance(control, Open):
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
    encoded: bytes = msgpack.packb([VERSION, kind, fields])
    return encoded


_KINDS: list[type[Any]] = [Open, Opened, Refused, Ack, Nack, Beat, NeedTable]


def decode_control(data: bytes) -> Control:
    """Return the control in bytes; raises WireError."""
    return _decode(data, _read_control)


def _read_control(message: list[Any]) -> Control:
    _, kind, fields = message
    epoch, *rest = _list(fields)
    made = _KINDS[_number(kind)]
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


def _decode(data: bytes, read: Callable[[list[Any]], T]) -> T:
    try:
        fields = _list(msgpack.unpackb(data, use_list=True, strict_map_key=False))
        if not fields or fields[0] != VERSION:
            version = fields[0] if fields else None
            raise WireError(f"the other broker writes version {version!r} of the format, this one {VERSION}")
        return read(fields)
    except RouteError as error:
        raise WireError(f"a route cannot be read: {error}") from error
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
