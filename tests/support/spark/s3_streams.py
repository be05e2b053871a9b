"""Streams in a bucket of a private S3 server: sources, sinks and checkpoints at `s3a://…`.

The server is moto's, on loopback. To see what a pipeline has left, all objects are copied to the folder of
the stream, where the helpers of local streams find them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from moto.server import ThreadedMotoServer

from sapwood.bench.harness import maven_jars

_KEY, _SECRET, _REGION = "key", "secret", "eu-north-1"


class Bucket:
    """A bucket of an S3 server."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.name = name
        self._endpoint = endpoint
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=_KEY,
            aws_secret_access_key=_SECRET,
            region_name=_REGION,
        )
        self._client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": _REGION})

    def put(self, key: str, body: bytes) -> None:
        """Create or replace an object."""
        self._client.put_object(Bucket=self.name, Key=key, Body=body)

    def has(self, key: str) -> bool:
        """Whether there is an object."""
        try:
            self._client.head_object(Bucket=self.name, Key=key)
        except ClientError:
            return False
        return True

    def list_keys(self) -> list[str]:
        """The keys of all objects, without those that mark folders."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        return [key for key in keys if not key.endswith("/")]

    def copy_to(self, folder: Path) -> None:
        """Copy all objects to files below a folder."""
        for key in self.list_keys():
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            self._client.download_file(self.name, key, str(path))

    def spark_settings(self) -> dict[str, str]:
        """The settings of a session that reaches the bucket, and no other."""
        jars = [*maven_jars.S3_FILE_SYSTEM.fetch(), *maven_jars.AWS_SDK.fetch()]
        own = f"spark.hadoop.fs.s3a.bucket.{self.name}"
        return {
            "spark.jars": ",".join(map(str, jars)),
            f"{own}.endpoint": self._endpoint,
            f"{own}.endpoint.region": _REGION,
            f"{own}.access.key": _KEY,
            f"{own}.secret.key": _SECRET,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "1",
        }

    def move_pipeline(self, settings: Path) -> None:
        """Change a pipeline file: its sources, sinks and checkpoint are in the bucket, its store is not."""
        lines = []
        for line in settings.read_text().splitlines():
            key, _, value = line.partition(" = ")
            if key in ("path", "checkpoint"):
                line = f'{key} = "s3a://{self.name}/{value.strip(chr(34))}"'
            lines.append(line)
        if "[spark]" not in lines:
            lines.append("[spark]")
        known = {line.partition(" = ")[0] for line in lines}
        more = {f'"{key}"': value for key, value in self.spark_settings().items()}
        lines += [f'{key} = "{value}"' for key, value in more.items() if key not in known]
        settings.write_text("\n".join(lines) + "\n")


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server, and give its address."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else each request is logged
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
