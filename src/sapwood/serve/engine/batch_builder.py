"""A batch in the making: commands are evaluated, and become one transaction of the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from sapwood.engine.failures import Failure
from sapwood.errors import MessageError
from sapwood.serve.engine.frames import (
    Acknowledge,
    AddDeadLetter,
    Committed,
    ConfigureInbox,
    DeleteDeadLetters,
    MessageProblem,
    Publish,
    Receipt,
)
from sapwood.serve.engine.message_ids import Key, KnownMessage, MessageIds, digest, digest_of
from sapwood.serve.log.entries import ENTRY, MESSAGE, NO_ENTRIES, Entries
from sapwood.serve.log.inbox_table import InboxTable
from sapwood.serve.log.log_batch import EvaluatedMessage, Gap, LogBatch, Row
from sapwood.serve.tenants.evaluation import Deferred, Evaluation, Publication
from sapwood.serve.tenants.tenant_engines import TenantEngines

if TYPE_CHECKING:
    from sapwood.serve.mesh.node.mesh_runtime import MeshRuntime

_log = logging.getLogger(__name__)
KEPT_BODY = 65_536
"""bytes of a refused message that are kept"""

Result = Receipt | MessageProblem


class BatchBuilder:
    """Evaluates commands, and collects the rows that they make."""

    def __init__(
        self,
        engines: TenantEngines,
        inboxes: InboxTable,
        ids: MessageIds,
        seq: int,
        mesh: MeshRuntime | None = None,
    ) -> None:
        self._engines = engines
        self._mesh = mesh
        if mesh is not None:
            mesh.use(self)
        self._inboxes = inboxes
        self._ids = ids
        self._first = seq + 1
        self._batch = LogBatch(0, seq, 0)
        self._sources: list[tuple[int, int, int, float, float, bool]] = []
        self._outputs: dict[tuple[int, int], tuple[str, bytes]] = {}
        self._answers: list[tuple[int, Any]] = []
        self._evaluations: list[Evaluation] = []
        """one for each message, in order"""
        self._receipts: list[Receipt] = []
        """one for each message, in order"""
        self._new: dict[Key, tuple[bytes, Receipt]] = {}
        """digests and receipts of the messages of this batch, which another request may repeat"""
        self._repeated: list[tuple[Receipt, Receipt]] = []
        """receipts of repetitions, with those of the messages"""
        self._stored: list[Entries] = []
        """of messages that the log had before"""
        self._evaluated: list[tuple[Deferred, Evaluation]] = []
        self._touched: set[int] = set()
        self._gaps: dict[int, Gap] = {}
        self.failures: list[dict[str, Any]] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store and nothing to answer."""
        changed = self._touched or self._batch.deleted_inboxes or self._batch.messages or self._batch.rejects
        return not (self._answers or changed or self._batch.mesh or self._stored)

    # -- messages --------------------------------------------------------------------------------------

    def publish(self, command: Publish) -> None:
        """Evaluate messages."""
        known = self._ids.find(command.messages)
        results: list[Result | None] = [None] * len(command.messages)
        full = self._inboxes.find_full()
        for tenant, run in groupby(enumerate(command.messages), lambda item: item[1].tenant):
            if tenant in full:
                for i, message in run:
                    results[i] = MessageProblem(message.id, full[tenant], backlog=True)
            else:
                self._publish_run(tenant, list(run), command.request, known, results)
        self._answers.append((command.request, results))

    def _publish_run(
        self,
        tenant: str,
        run: list[tuple[int, Publication]],
        request: int,
        known: dict[Key, KnownMessage],
        results: list[Result | None],
    ) -> None:
        chosen: dict[Key, tuple[int, Publication, bytes]] = {}
        again: list[tuple[int, Publication, bytes, Key]] = []
        for i, message in run:
            key = tenant, message.stream, message.id
            mark = digest(message.body)
            if key in known:
                results[i] = _answer_again(message, mark, known[key])
            elif key in self._new or key in chosen:
                again.append((i, message, mark, key))
            else:
                chosen[key] = i, message, mark
        new = [message for _, message, _ in chosen.values()]
        evaluate = self._engines.of(tenant).evaluate if self._mesh is None else self._mesh.evaluate
        evaluations = evaluate(new)
        for (key, (i, message, mark)), evaluation in zip(chosen.items(), evaluations, strict=True):
            if isinstance(evaluation, MessageError):
                results[i] = self._reject(message, evaluation)
            else:
                results[i] = receipt = self._store(message, mark, evaluation, request, i)
                self._new[key] = mark, receipt
        untaken: list[tuple[int, Publication]] = []
        for i, message, mark, key in again:
            if key in self._new:
                results[i] = self._repeat(message, mark, key)
            else:  # the message before was refused, and so its id is free
                untaken.append((i, message))
        if untaken:
            self._publish_run(tenant, untaken, request, known, results)

    def _repeat(self, message: Publication, mark: bytes, key: Key) -> Result:
        """Return the result of a message whose id is in this batch before."""
        known, first = self._new[key]
        if known != mark:
            return _conflict(message)
        receipt = Receipt(first.id, first.seq, first.version, 0, first.time, duplicate=True)
        self._repeated.append((receipt, first))
        return receipt

    def _store(
        self, message: Publication, mark: bytes, evaluation: Evaluation, request: int, i: int
    ) -> Receipt:
        batch = self._batch
        batch.seq += 1
        seq, version, received = batch.seq, self._engines.version, time.time()
        has_time = evaluation.time is not None
        moment = evaluation.time if evaluation.time is not None else received
        batch.messages.append(
            {
                "seq": seq,
                "tenant": message.tenant,
                "stream": message.stream,
                "id": message.id,
                "time": moment,
                "has_time": has_time,
                "received": received,
                "version": version,
                "deliveries": 0,
                "body": message.body,
            }
        )
        batch.ids.append(
            {
                "tenant": message.tenant,
                "stream": message.stream,
                "id": message.id,
                "seq": seq,
                "version": version,
                "deliveries": 0,
                "digest": mark,
                "received": received,
            }
        )
        for number, output in enumerate(evaluation.made):
            batch.outputs.append(
                {"seq": seq, "number": number, "message": output.message, "body": output.body}
            )
            self._outputs[seq, number] = output
        self._sources.append((seq, request, i, received, moment, has_time))
        if self._mesh is not None:
            self._mesh.place(Deferred(seq, version, message), evaluation)
        self._evaluations.append(evaluation)
        receipt = Receipt(message.id, seq, version, 0, moment, False, evaluation.late)
        receipt.failures = len(evaluation.failures)
        self._receipts.append(receipt)
        for failure in evaluation.failures:
            self._record_failure(message, failure)
        return receipt

    def _record_failure(self, message: Publication, failure: Failure) -> None:
        _log.warning(
            "the subscription at place %s failed on message %s of stream %s: %s",
            failure.subscription,
            message.id,
            message.stream,
            failure.reason,
        )
        self.failures.append(
            {
                "tenant": message.tenant,
                "place": failure.subscription,
                "kind": str(failure.kind),
                "reason": failure.reason,
                "message": message.id,
                "stream": message.stream,
                "time": time.time(),
            }
        )

    def _reject(self, message: Publication, error: MessageError) -> MessageProblem:
        self._batch.rejects.append(
            {
                "tenant": message.tenant,
                "stream": message.stream,
                "id": message.id,
                "received": time.time(),
                "reason": error.reason,
                "line": error.line,
                "column": error.column,
                "body": bytes(message.body[:KEPT_BODY]),
            }
        )
        return MessageProblem(message.id, error.reason, error.line, error.column)

    # -- messages of the mesh --------------------------------------------------------------------------

    def store_received(self, message: Publication, mark: bytes, evaluation: Evaluation) -> None:
        """Store a message that came from another broker, or that a query has published."""
        receipt = self._store(message, mark, evaluation, 0, 0)
        self._new[message.tenant, message.stream, message.id] = mark, receipt

    def reject_received(self, message: Publication, error: MessageError) -> None:
        """Record a message that another broker has accepted, and this one refuses."""
        self._reject(message, error)

    def deliver_stored(self, seq: int, evaluation: Evaluation, first_output: int) -> None:
        """Deliver a message that is in the log, to a subscription that did not see it when it came.

        Its outputs are numbered from `first_output` on.
        """
        entries = np.empty(len(evaluation.places), ENTRY)
        entries["seq"], entries["inbox"], entries["place"] = seq, evaluation.inboxes, evaluation.places
        (outputs,) = _list_outputs([evaluation])
        entries["output"] = np.where(outputs == MESSAGE, MESSAGE, outputs + first_output)
        for number, output in enumerate(evaluation.made, first_output):
            self._batch.outputs.append(
                {"seq": seq, "number": number, "message": output.message, "body": output.body}
            )
            self._outputs[seq, number] = output
        if len(entries):
            self._stored.append(entries)

    def store_evaluation(self, deferred: Deferred, evaluation: Evaluation) -> None:
        """Store what became of a message that was stored without its deliveries, in this batch or before."""
        self.deliver_stored(deferred.seq, evaluation, 0)
        self._evaluated.append((deferred, evaluation))
        for failure in evaluation.failures:
            self._record_failure(deferred.message, failure)

    def finish_mesh(self) -> None:
        """Complete what is to be stored for the mesh."""
        if self._mesh is not None:
            self._mesh.flush(self)
            self._batch.mesh = self._mesh.take_changes()

    # -- inboxes ---------------------------------------------------------------------------------------

    def acknowledge(self, command: Acknowledge) -> None:
        """Acknowledge deliveries."""
        if self._acknowledge(command.inbox, command.upto):
            self._touched.add(command.inbox)
        known = command.inbox in self._inboxes.names
        done = int(self._inboxes.acknowledged[command.inbox]) if known else None
        self._answers.append((command.request, done))

    def _acknowledge(self, inbox: int, upto: int) -> bool:
        return inbox in self._inboxes.names and self._inboxes.acknowledge(inbox, upto)

    def add_dead_letter(self, command: AddDeadLetter) -> None:
        """Keep a delivery as a dead letter, and acknowledge it."""
        if command.inbox in self._inboxes.names:
            self._batch.dead_letters.append(
                {
                    "inbox": command.inbox,
                    "delivery": command.number,
                    "record": command.record,
                    "attempts": command.attempts,
                    "reason": command.reason,
                    "since": time.time(),
                }
            )
            if self._acknowledge(command.inbox, command.number):
                self._touched.add(command.inbox)
        self._answers.append((command.request, None))

    def delete_dead_letters(self, command: DeleteDeadLetters) -> None:
        """Delete dead letters."""
        self._batch.deleted_dead_letters += command.numbers
        self._answers.append((command.request, None))

    def configure(self, command: ConfigureInbox) -> None:
        """Change the settings of an inbox, which is created if it is absent."""
        inboxes = self._inboxes
        number = inboxes.find(command.tenant, command.subscriber)
        if number is None:
            number = inboxes.create(command.tenant, command.subscriber)
        if command.settings is not None:
            inboxes.configure(number, command.settings)
        if command.resume:
            inboxes.suspended.discard(number)
        self._touched.add(number)
        self._answers.append((command.request, number))

    def delete_inbox(self, number: int) -> None:
        """Delete an inbox with all that is in it."""
        self._inboxes.delete(number)
        self._batch.deleted_inboxes.append(number)

    def expire(self, number: int, upto: int) -> None:
        """Drop deliveries whose messages are not kept any longer."""
        gap = self._inboxes.expire(number, upto)
        if gap is not None:
            self._gaps[number] = gap
            self._touched.add(number)

    def touch(self, number: int) -> None:
        """Store an inbox that was created."""
        self._touched.add(number)

    # -- the batch -------------------------------------------------------------------------------------

    def build(self, number: int) -> tuple[LogBatch, Committed]:
        """Return the transaction, and what the server is told when it is committed."""
        batch = self._batch
        batch.number = number
        batch.last_inbox = self._inboxes.last_number
        unnumbered = np.concatenate([*self._stored, self._collect_entries()])
        if self._evaluated:  # an inbox has its deliveries in the order of messages
            unnumbered = unnumbered[np.argsort(unnumbered["seq"], kind="stable")]
        entries, gaps, affected = self._inboxes.admit(unnumbered)
        batch.entries = entries
        self._count_deliveries(entries)
        self._count_evaluated(entries)
        self._touched |= affected
        self._touched.update(gap.inbox for gap in gaps)
        batch.gaps = [*self._gaps.values(), *gaps]
        known = self._inboxes.names
        batch.inboxes = {inbox: self._inboxes.row(inbox) for inbox in self._touched if inbox in known}
        committed = Committed(
            entries.tobytes(),
            self._outputs,
            self._sources,
            list(batch.inboxes.values()),
            batch.deleted_inboxes,
            batch.gaps,
            self._answers,
            batch.mesh.store if batch.mesh is not None else 0,
        )
        return batch, committed

    def _collect_entries(self) -> Entries:
        counts = [len(evaluation.places) for evaluation in self._evaluations]
        total = sum(counts)
        if not total:
            return NO_ENTRIES
        entries = np.empty(total, ENTRY)
        entries["seq"] = np.repeat(np.arange(self._first, self._first + len(counts)), counts)
        entries["inbox"] = np.concatenate([evaluation.inboxes for evaluation in self._evaluations])
        entries["place"] = np.concatenate([evaluation.places for evaluation in self._evaluations])
        entries["output"] = np.concatenate(list(_list_outputs(self._evaluations)))
        # an inbox that was deleted has subscriptions no more
        return entries

    def _count_deliveries(self, entries: Entries) -> None:
        rows: Iterable[tuple[Row, Row, Receipt]] = zip(
            self._batch.messages, self._batch.ids, self._receipts, strict=True
        )
        seqs = entries["seq"]
        counts = np.bincount(seqs[seqs >= self._first] - self._first, minlength=len(self._receipts)).tolist()
        for count, (message, id, receipt) in zip(counts, rows, strict=True):
            message["deliveries"] = id["deliveries"] = receipt.deliveries = count
            key = str(id["tenant"]), str(id["stream"]), str(id["id"])
            self._ids.add(key, KnownMessage(receipt.seq, receipt.version, count, _bytes(id["digest"])))
        for again, receipt in self._repeated:
            again.deliveries = receipt.deliveries

    def _count_evaluated(self, entries: Entries) -> None:
        for (seq, version, message), evaluation in self._evaluated:
            count = int(np.count_nonzero(entries["seq"] == seq))
            moment = evaluation.time if message.time is None else None
            self._batch.evaluated.append(
                EvaluatedMessage(seq, message.tenant, message.stream, message.id, count, moment)
            )
            key = message.tenant, message.stream, message.id
            self._ids.add(key, KnownMessage(seq, version, count, digest_of(message)))


def _list_outputs(evaluations: Iterable[Evaluation]) -> Iterator[Any]:
    for evaluation in evaluations:
        if evaluation.outputs is not None:
            yield evaluation.outputs
        else:
            yield np.full(len(evaluation.places), MESSAGE)


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def _answer_again(message: Publication, mark: bytes, known: KnownMessage) -> Result:
    if known.digest != mark:
        return _conflict(message)
    return Receipt(message.id, known.seq, known.version, known.deliveries, 0.0, duplicate=True)


def _conflict(message: Publication) -> MessageProblem:
    reason = f"another message with the id {message.id!r} was published in stream {message.stream!r} before"
    return MessageProblem(message.id, reason, conflict=True)
