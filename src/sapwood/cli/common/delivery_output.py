"""Deliveries, refused messages and failures as JSON lines and as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sapwood.cli.common.console import report, write_line
from sapwood.engine.message.encoding import decode_message

if TYPE_CHECKING:  # a command that only matches delivers nothing, and loads no joins for it
    from sapwood import Delivery, Failure, MessageError


def report_refused(name: str, error: MessageError, raw: bool) -> None:
    """Report a refused message, as a JSON line or, if only bodies are written, on the standard error."""
    if raw:
        report(name, str(error))
    else:
        details = {"reason": error.reason, "line": error.line, "column": error.column}
        write_line({"message": name, "error": details})


def failures_field(failures: Sequence[Failure]) -> dict[str, list[dict[str, Any]]]:
    """Return the field of a JSON line that lists failed subscriptions; empty if there are none."""
    if not failures:
        return {}
    details = [{"id": f.subscription, "kind": str(f.kind), "reason": f.reason} for f in failures]
    return {"undecided": details}


def report_failures(name: str, failures: Sequence[Failure]) -> int:
    """Report subscriptions that failed on a message, and return their number."""
    for failure in failures:
        report(f"{name if failure.message is None else failure.message}", str(failure))
    return len(failures)


def write_failures(name: str, failures: Sequence[Failure], raw: bool) -> int:
    """Report failures for commands that write one line per delivery, also as a line of its own."""
    if failures and not raw:
        write_line({"message": name, **failures_field(failures)})
    return report_failures(name, failures)


def write_delivery(delivery: Delivery, is_filter: bool, raw: bool) -> None:
    """Write a delivery as a JSON line, or its body alone."""
    body = decode_message(delivery.body) if is_filter else delivery.body.decode()
    if raw:
        sys.stdout.write(body + "\n")
        return
    line: dict[str, object] = {"message": delivery.message, "subscription": delivery.subscription}
    line["body"] = body
    if delivery.meeting is not None:
        line["messages"] = list(delivery.meeting.messages)
    write_line(line)
