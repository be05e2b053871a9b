"""How commands that deliver write what is delivered, and tell what is refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sapwood.cli.common.console import report, write_line
from sapwood.engine.message.encoding import decode_message

if TYPE_CHECKING:  # a command that only matches delivers nothing, and loads no joins for it
    from sapwood import Delivery, Failure, MessageError


def refuse(name: str, error: MessageError, raw: bool) -> None:
    """Tells that a message was refused, as a JSON line or, if bodies are written alone, beside them."""
    if raw:
        report(name, str(error))
    else:
        told = {"reason": error.reason, "line": error.line, "column": error.column}
        write_line({"message": name, "error": told})


def undecided(failures: Sequence[Failure]) -> dict[str, list[dict[str, Any]]]:
    """What a JSON line says of subscriptions that have no answer; nothing if all have."""
    if not failures:
        return {}
    told = [{"id": f.subscription, "kind": str(f.kind), "reason": f.reason} for f in failures]
    return {"undecided": told}


def tell_failures(name: str, failures: Sequence[Failure]) -> int:
    """Reports subscriptions that have no answer on a message; how many there are."""
    for failure in failures:
        report(f"{name if failure.message is None else failure.message}", str(failure))
    return len(failures)


def fail_line(name: str, failures: Sequence[Failure], raw: bool) -> int:
    """The same for commands that write a line for each delivery: also in a line of their own."""
    if failures and not raw:
        write_line({"message": name, **undecided(failures)})
    return tell_failures(name, failures)


def deliver(delivery: Delivery, is_filter: bool, raw: bool) -> None:
    """Writes a delivery as a JSON line, or its body alone."""
    body = decode_message(delivery.body) if is_filter else delivery.body.decode()
    if raw:
        sys.stdout.write(body + "\n")
        return
    line: dict[str, object] = {"message": delivery.message, "subscription": delivery.subscription}
    line["body"] = body
    if delivery.meeting is not None:
        line["messages"] = list(delivery.meeting.messages)
    write_line(line)
