"""`sapwood publish`: publish messages of files to a broker service."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.cli.common.console import finish, make_progress, note, report, write_line
from sapwood.cli.common.interruption import InterruptHandler
from sapwood.cli.common.options import MESSAGES_HELP
from sapwood.cli.common.service_options import DEFAULT_URL, KeyOption, UrlOption, connect
from sapwood.errors import MessageError, SapwoodError
from sapwood.input_files import NamedMessage, read_messages

if TYPE_CHECKING:
    from sapwood.client import Message, PublishReceipt, Refusal

BATCH = 500


def publish(
    messages: Annotated[list[str], typer.Argument(help=MESSAGES_HELP)],
    stream: Annotated[str, typer.Option(metavar="NAME", help="The stream that the messages belong to.")],
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="When the messages happened: ISO 8601, or seconds since the epoch."
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Make ids of names and contents: the same command, run again, publishes nothing twice.",
        ),
    ] = False,
    wait_delivered: Annotated[
        bool, typer.Option("--wait-delivered", help="Wait until subscribers have acknowledged the messages.")
    ] = False,
    batch: Annotated[
        int, typer.Option(min=1, help="Messages per request; 1 sends each line of a slow input at once.")
    ] = BATCH,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON line for each message.")] = False,
) -> None:
    """Publish messages to a broker, which has them on disk when the command ends.

    Refused messages are reported, and the rest is published; the exit status is then 1. Ctrl-C ends the
    command after the current request, and prints what has been published.
    """
    publication = _Publication(as_json, once)
    with (
        connect(url, key, "sapwood publish") as client,
        make_progress(rate=True, writing=as_json) as progress,
    ):
        task = progress.add_task("publishing", total=None)
        with _PublishInterruption(publication) as interruption, publication:
            results = client.publish_many(
                stream,
                publication.read(messages, time, interruption),
                "delivered" if wait_delivered else "durable",
                batch=batch,
            )
            for result in results:
                publication.add(result)
                progress.advance(task)
    if not as_json and publication.seen:
        print(publication.summary())
    finish(publication.seen, publication.refused)


class _Publication:
    """The results so far, and the messages without one; entered, it states both if the command ends early."""

    def __init__(self, as_json: bool, once: bool) -> None:
        self._as_json = as_json
        self._once = once
        self._waiting: deque[str] = deque()
        """the names of messages that were read and have no result"""
        self._last = ""
        self.seen = self.published = self.duplicates = self.refused = self.deliveries = 0

    def read(self, sources: list[str], time: str | None, interruption: InterruptHandler) -> Iterator[Message]:
        """Yield the messages of files; Ctrl-C ends the command while it waits for one."""
        found = read_messages(sources)
        while True:
            with interruption.allowed():
                message = next(found, None)
            if message is None:
                return
            self._waiting.append(message.name)
            yield self._make(message, time)

    def _make(self, message: NamedMessage, time: str | None) -> Message:
        from sapwood.client import Message

        if not self._once:
            return Message(message.body, time=time)
        digest = hashlib.sha256(message.name.encode("utf-8", "surrogateescape") + b"\0" + message.body)
        return Message(message.body, digest.hexdigest()[:32], time)

    def add(self, result: PublishReceipt | Refusal) -> None:
        """Count and write the result of the next message."""
        from sapwood.client import Refusal

        self._last = name = self._waiting.popleft()
        self.seen += 1
        if isinstance(result, Refusal):
            self.refused += 1
            self._write_refusal(name, result.error)
            return
        # An id that was made for this message is known from an earlier attempt of this command only.
        if result.duplicate and self._once:
            self.duplicates += 1
        else:
            self.published += 1
            self.deliveries += result.deliveries
        if self._as_json:
            fields = {key: value for key, value in asdict(result).items() if value is not None}
            write_line({"message": name, **fields})

    def _write_refusal(self, name: str, error: SapwoodError) -> None:
        if not self._as_json:
            report(name, str(error))
        elif isinstance(error, MessageError):
            place = {"line": error.line, "column": error.column}
            write_line({"message": name, "error": {"reason": error.reason, **place}})
        else:
            write_line({"message": name, "error": {"reason": getattr(error, "reason", str(error))}})

    def summary(self) -> str:
        """Return the counts so far."""
        known = f", known before {self.duplicates:,}" if self.duplicates else ""
        refused = f", refused {self.refused:,}"
        return f"published {self.published:,}{known}{refused}; deliveries {self.deliveries:,}"

    def state_end(self, *, sent: bool) -> None:
        """Print what has been published when the command ends early; `sent`: a request may have arrived."""
        text = f"{self.summary()}; the last was {self._last}" if self.seen else "nothing was published"
        if sent and self._waiting:
            count = len(self._waiting)
            text += f"; the {count:,} from {self._waiting[0]} to {self._waiting[-1]} may have been, too"
        if self._once:
            text += "; the same command publishes the rest"
        note(text)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        from sapwood.client import Unavailable

        if isinstance(error, KeyboardInterrupt | SapwoodError):
            # Ctrl-C ends the command between requests, and a refused request publishes nothing.
            self.state_end(sent=isinstance(error, Unavailable))


class _PublishInterruption(InterruptHandler):
    """Ends the command after the current request, or with a statement at once."""

    def __init__(self, publication: _Publication) -> None:
        super().__init__()
        self._publication = publication

    def on_first(self) -> None:
        note("stopping after the current request; Ctrl-C again to stop at once")

    def on_second(self) -> None:
        self._publication.state_end(sent=True)
        super().on_second()
