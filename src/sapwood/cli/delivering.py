"""How commands that deliver write what is delivered, and tell what is refused."""

from __future__ import annotations

import sys

from sapwood import Delivery, MessageError
from sapwood.cli.console import report, write_line
from sapwood.engine.encoding import decoded


def refuse(name: str, error: MessageError, raw: bool) -> None:
    """Tells that a message was refused, as a JSON line or, if bodies are written alone, beside them."""
    if raw:
        report(name, str(error))
    else:
        told = {"reason": error.reason, "line": error.line, "column": error.column}
        write_line({"message": name, "error": told})


def deliver(delivery: Delivery, is_filter: bool, raw: bool) -> None:
    """Writes a delivery as a JSON line, or its body alone."""
    body = decoded(delivery.body) if is_filter else delivery.body.decode()
    if raw:
        sys.stdout.write(body + "\n")
        return
    line: dict[str, object] = {"message": delivery.message, "subscription": delivery.subscription}
    line["body"] = body
    if delivery.meeting is not None:
        line["messages"] = list(delivery.meeting.messages)
    write_line(line)
