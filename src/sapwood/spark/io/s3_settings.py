"""The settings of `s3a`, Hadoop's file system of S3, for that of Arrow, which Python uses beside it.

Spark reads and writes tables through Hadoop, with `spark.hadoop.fs.s3a.*` as settings. Files of messages,
snapshots and feedback are read by Python, on workers too, where those settings are unknown. So the driver
passes what both need, endpoint, region and credentials by bucket, in an environment variable of the workers:
Spark gives a Python function the environment of the context that it was made in.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyarrow import fs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VARIABLE = "SAPWOOD_S3_SETTINGS"
_BUCKET = re.compile(r"s3[an]?://([^/]+)")
_CENTRAL = "s3.amazonaws.com"
_ANONYMOUS = "AnonymousAWSCredentialsProvider"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How a bucket is reached; what is None is found as Arrow does without settings."""

    endpoint: str | None = None
    scheme: str = "https"
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    anonymous: bool = False

    def __repr__(self) -> str:
        return f"S3Settings({self.scheme}://{self.endpoint or _CENTRAL})"  # no secrets in logs


def share_s3_settings(spark: SparkSession, *paths: str | None) -> None:
    """Pass the settings for the buckets of paths to this process and to the workers of functions that are
    made from now on."""
    found = {bucket[1] for path in paths if path is not None and (bucket := _BUCKET.match(path))}
    if not found:
        return
    known = _load() | {bucket: asdict(_read_settings(spark, bucket)) for bucket in sorted(found)}
    os.environ[_VARIABLE] = spark.sparkContext.environment[_VARIABLE] = json.dumps(known)


def open_s3(bucket: str) -> fs.S3FileSystem | None:
    """Return the file system of a bucket, or None if no settings were shared for it."""
    known = _load().get(bucket)
    return _connect(bucket, S3Settings(**known)) if known is not None else None


def _load() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(os.environ.get(_VARIABLE, "{}"))
    return found


@lru_cache(maxsize=16)
def _connect(bucket: str, settings: S3Settings) -> fs.S3FileSystem:
    region = settings.region
    if region is None and settings.endpoint is None:
        region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        access_key=settings.access_key,
        secret_key=settings.secret_key,
        session_token=settings.session_token,
        anonymous=settings.anonymous,
        region=region,
        scheme=settings.scheme,
        endpoint_override=settings.endpoint,
    )


def _read_settings(spark: SparkSession, bucket: str) -> S3Settings:
    """Read the settings of a bucket from Hadoop's: those of the bucket precede those of all."""
    hadoop: Any = spark._jsc.hadoopConfiguration()

    def read(key: str) -> str | None:
        value = hadoop.get(f"fs.s3a.bucket.{bucket}.{key}") or hadoop.get(f"fs.s3a.{key}")
        return str(value) if value else None

    endpoint = read("endpoint")
    scheme = "http" if read("connection.ssl.enabled") == "false" else "https"
    if endpoint is not None and "://" in endpoint:
        scheme, _, endpoint = endpoint.partition("://")
    if endpoint is not None and endpoint.rstrip("/") in ("", _CENTRAL):
        endpoint = None
    access_key = read("access.key")
    return S3Settings(
        endpoint=endpoint.rstrip("/") if endpoint is not None else None,
        scheme=scheme,
        region=read("endpoint.region"),
        access_key=access_key,
        secret_key=read("secret.key") if access_key is not None else None,
        session_token=read("session.token") if access_key is not None else None,
        anonymous=_ANONYMOUS in (read("aws.credentials.provider") or "").split(",")[0],
    )
