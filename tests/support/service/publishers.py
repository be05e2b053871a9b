"""Publishers that repeat a request with the same ids until it is answered, and remember what was accepted."""

from __future__ import annotations

import threading
from random import Random
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.service.random_load import RandomLoad, RandomMessage

_PAUSE = 0.05
"""seconds before a request is repeated"""


class RetryingPublisher:
    """Publishes random messages in a thread, one by one and several at once; to be entered."""

    def __init__(self, url: str, name: str, seed: int) -> None:
        self._url, self._name = url, name
        self._rng = Random(seed)
        self._load = RandomLoad(seed, ["nobody"], spread=20)
        self.accepted: list[tuple[str, int]] = []
        """ids and sequence numbers, in the order published"""
        self.bodies: dict[str, bytes] = {}
        self.refused = self.repeated = 0
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"publisher {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End after the request that is under way is answered."""
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self._name} has no answer"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with httpx.Client(timeout=15) as client:
                while not self._stopping.is_set():
                    self._publish(client)
        except BaseException as error:
            self.failure = error
        finally:
            self._load.close()

    def _publish(self, client: httpx.Client) -> None:
        drawn = [self._load.message() for _ in range(1 if self._rng.random() < 0.6 else 6)]
        several = [each for each in drawn if each.stream == drawn[0].stream]
        path = f"{self._url}/v1/streams/{drawn[0].stream}/messages"
        if len(drawn) == 1:
            headers = {"Sapwood-Message-Id": self._id(drawn[0]), "Sapwood-Time": repr(drawn[0].time)}
            answer = self._send(client, path, content=drawn[0].body, headers=headers)
            self._note(drawn[0], answer.json(), answer.status_code == 422)
            return
        parts = [
            ("m", (self._id(each), each.body, "application/xml", {"Sapwood-Time": repr(each.time)}))
            for each in several
        ]
        results = self._send(client, path, files=parts).json()["messages"]
        for message, result in zip(several, results, strict=True):
            self._note(message, result, "error" in result)

    def _id(self, message: RandomMessage) -> str:
        return f"{self._name}-{message.id}"

    def _send(self, client: httpx.Client, path: str, **request: Any) -> httpx.Response:
        while True:
            try:
                answer = client.post(path, **request)
            except httpx.HTTPError:
                pass
            else:
                if answer.status_code not in (429, 503):
                    assert answer.status_code in (200, 201, 422), answer.text
                    return answer
            self.repeated += 1
            self._stopping.wait(_PAUSE)

    def _note(self, message: RandomMessage, result: dict[str, Any], refused: bool) -> None:
        if refused:
            self.refused += 1
            return
        self.accepted.append((self._id(message), result["seq"]))
        self.bodies[self._id(message)] = message.body
