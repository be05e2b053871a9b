"""Questions that brokers of a mesh ask each other: JSON beside the controls of the links.

A control of a link begins with one byte, a question or an answer with another. Both may be lost: who asks
waits for some time, and says then who has not answered.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from sapwood.errors import SapwoodError
from sapwood.serve.mesh.mesh_errors import BrokerRefused, BrokerSilent

_log = logging.getLogger(__name__)
LINK_CONTROL, QUERY = b"\x00", b"\x01"
_WAIT = 3.0
Answerer = Callable[[dict[str, Any]], Awaitable[Any]]


class MeshQueries:
    """Asks other brokers, and answers them."""

    def __init__(self, broker: str, send: Callable[[str, bytes], None]) -> None:
        self._broker = broker
        self._send = send
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answerers: dict[str, Answerer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, what: str, answerer: Answerer) -> None:
        """Set who answers questions of a kind."""
        self._answerers[what] = answerer

    def answer_all(self, answers: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
        """Set who answers questions of several kinds, with their arguments by name."""
        for what, answerer in answers.items():
            self._answerers[what] = partial(_call, answerer)

    async def ask(self, broker: str, what: str, wait: float = _WAIT, **arguments: Any) -> Any:
        """Return the answer of a broker, which may be this one; raises BrokerSilent or BrokerRefused."""
        if broker == self._broker:
            return await self._answerers[what](arguments)
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        question = {"question": what, "number": number, "arguments": arguments}
        try:
            self._send(broker, QUERY + json.dumps(question).encode())
            async with asyncio.timeout(wait):
                return await future
        except TimeoutError:
            raise BrokerSilent(f"the broker {broker!r} has not answered within {wait:g} s") from None
        finally:
            del self._waiting[number]

    async def ask_all(self, brokers: Iterable[str], what: str, **arguments: Any) -> dict[str, Any]:
        """Return the answers of brokers, and a SapwoodError for those that have none."""
        names = list(brokers)
        asked = [self.ask(name, what, **arguments) for name in names]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, SapwoodError):
                raise answer
        return dict(zip(names, answers, strict=True))

    def receive(self, sender: str, data: bytes) -> None:
        """Take a question or an answer of another broker."""
        try:
            message = json.loads(data)
            number = message["number"]
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("a question of %s cannot be read: %s", sender, error)
            return
        if "question" in message:
            task = asyncio.get_running_loop().create_task(self._reply(sender, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        future = self._waiting.get(number)
        if future is not None and not future.done():
            if "error" in message:
                future.set_exception(BrokerRefused(f"{sender}: {message['error']}"))
            else:
                future.set_result(message.get("answer"))

    async def _reply(self, sender: str, message: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"number": message["number"]}
        try:
            reply["answer"] = await self._answerers[message["question"]](message["arguments"])
        except SapwoodError as error:
            reply["error"] = str(error)
        except (KeyError, TypeError, ValueError) as error:
            reply["error"] = f"the question is not understood: {error!r}"
        self._send(sender, QUERY + json.dumps(reply).encode())


def _call(answerer: Callable[..., Awaitable[Any]], arguments: dict[str, Any]) -> Awaitable[Any]:
    return answerer(**arguments)
