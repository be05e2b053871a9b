"""Traces for OpenTelemetry, if it is installed; without it, and by configuration, nothing happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_Value = str | int | float | bool


class _Tracing:
    """The tracer of the process: OpenTelemetry has one provider for it, too."""

    tracer: Any = None
    """None: there are no traces"""


class Span:
    """A span, or nothing, that takes attributes."""

    __slots__ = ("_span",)

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def set(self, **attributes: _Value) -> None:
        """Add attributes; in their names, `__` stands for a dot."""
        if self._span is not None:
            self._span.set_attributes(_rename(attributes))

    def fail(self, reason: str) -> None:
        """Mark the span as failed."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, reason))


_NOTHING = Span()


def configure_tracing(wanted: bool) -> None:
    """Make traces from now on, if they are wanted and OpenTelemetry is installed and configured, or none."""
    _Tracing.tracer = None
    if not wanted:
        return
    try:
        from opentelemetry import trace
    except ImportError:
        return
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # which nobody has configured
        _Tracing.tracer = trace.get_tracer("sapwood.serve")


@contextmanager
def trace(
    name: str, kind: str = "internal", headers: Mapping[str, str] | None = None, **attributes: _Value
) -> Iterator[Span]:
    """Trace what is done inside; `headers` are those of a request, which may continue a trace of its sender.

    In the names of attributes, `__` stands for a dot.
    """
    tracer = _Tracing.tracer
    if tracer is None:
        yield _NOTHING
        return
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind

    with tracer.start_as_current_span(
        name,
        context=extract(headers) if headers is not None else None,
        kind=SpanKind[kind.upper()],
        attributes=_rename(attributes),
    ) as span:
        yield Span(span)


def _rename(attributes: Mapping[str, _Value]) -> dict[str, _Value]:
    return {name.replace("__", "."): value for name, value in attributes.items()}
