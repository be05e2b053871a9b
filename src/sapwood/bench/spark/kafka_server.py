"""A private Kafka server: one JVM on loopback, in KRaft mode, with its data in one folder.

python -m sapwood.bench.spark.kafka_server FOLDER [PORT]     runs one until Ctrl-C, by default at port 9092
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from sapwood.bench.harness.maven_jars import KAFKA_SERVER
from sapwood.errors import SapwoodError
from sapwood.spark.spark_session import check_java, find_java

_START_SECONDS = 90.0
_STOP_SECONDS = 30.0


class KafkaServerError(SapwoodError):
    """Raised when the server does not start; has the end of its output."""


class KafkaServer:
    """A broker that can be stopped, killed and started again with the same address and data."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, port: int | None = None
    ) -> None:
        """`settings` are further ones of the broker, such as `message.max.bytes`. Without a `port`, it is any
        that is free; else, the controller has the next."""
        self._folder = folder
        self._classpath = os.pathsep.join(map(str, KAFKA_SERVER.fetch()))
        # the data knows the port of the controller, so it stays the same
        self._port, controller = (port, port + 1) if port is not None else _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        lines = _settings(folder / "data", self._port, controller) | dict(settings or {})
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        format_storage = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "--standalone"]
        # one argument: an id may begin with a hyphen, and would be taken for an option
        format_storage += [f"--cluster-id={cluster}", "-c", str(self._settings)]
        result = subprocess.run(self._java(*format_storage), capture_output=True, text=True, timeout=120)
        if result.returncode:
            raise KafkaServerError(f"Kafka's storage cannot be formatted: {result.stderr.strip()[-500:]}")

    @property
    def address(self) -> str:
        """The host and port, for `kafka.bootstrap.servers`."""
        return f"127.0.0.1:{self._port}"

    @property
    def _settings(self) -> Path:
        return self._folder / "server.properties"

    def _java(self, main: str, *arguments: str) -> list[str]:
        java = find_java()
        assert java is not None, "check_java was not called"
        return [java, "-Xmx512m", "-XX:+UseSerialGC", "-cp", self._classpath, main, *arguments]

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        log = self._folder / "server.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._settings)), stdout=output, stderr=output
            )
        limit = time.monotonic() + _START_SECONDS
        while time.monotonic() < limit and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        self.stop()
        raise KafkaServerError(f"Kafka did not start: {log.read_text(errors='replace')[-1000:]}")

    def stop(self) -> None:
        """Stop the server in an orderly way, if it runs."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def run_kafka(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[KafkaServer]:
    """Run a server in the folder until the block ends."""
    server = KafkaServer(folder, settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def main() -> None:
    """Run a server until Ctrl-C."""
    check_java()
    folder = Path(sys.argv[1]).absolute()
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 9092
    server = KafkaServer(folder, port=port)
    server.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    print(f"Kafka runs at {server.address}; Ctrl-C stops it", flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        server.stop()


def _settings(data: Path, port: int, controller: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        "num.partitions": "2",
        # one broker has no replicas
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def _free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    main()
