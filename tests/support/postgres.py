"""A PostgreSQL server of our own, while the tests run: private, on a socket in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

_SETTINGS = {  # what is lost in a crash need not be kept here
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "60",
}
_FRESH = count(1)


class Server:
    """Where a server listens, and fresh places in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, options: str = "") -> str:
        return f"postgresql://sapwood:hush@/postgres?host={self.folder}{options}"

    def fresh(self) -> str:
        """The URL of a new, empty schema."""
        name = f"fresh_{next(_FRESH)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(name)))
        return self.url(f"&options=-csearch_path%3D{name}")


def programs() -> Path | None:
    """The folder of the server's programs, if there is one on this machine."""
    candidates = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    if shutil.which("pg_config"):
        told = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        candidates.append(Path(told.stdout.strip()))
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((found for found in candidates if (found / "initdb").exists()), None)


@contextmanager
def running(programs: Path) -> Iterator[Server]:
    """A server that is stopped, and forgotten, at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="sapwood-pg-", dir="/tmp") as name:
        folder = Path(name)
        data = folder / "data"
        who = _unprivileged(folder)

        def run(program: str, *arguments: object) -> None:
            command = [str(programs / program), *map(str, arguments)]
            with (folder / f"{program}.log").open("ab") as log:  # a pipe would be kept open by the server
                try:
                    subprocess.run(command, check=True, stdout=log, stderr=log, timeout=60, cwd=folder, **who)
                except subprocess.CalledProcessError as error:
                    error.add_note((folder / f"{program}.log").read_text())
                    raise

        run("initdb", "-D", data, "-U", "sapwood", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        settings = " ".join(f"-c {name}={value or chr(39) * 2}" for name, value in _SETTINGS.items())
        run("pg_ctl", "-D", data, "-w", "-l", folder / "server.log", "-o", f"-k {folder} {settings}", "start")
        try:
            yield Server(folder)
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


def _unprivileged(folder: Path) -> dict[str, Any]:
    """The server refuses to run as root: then somebody else runs it, and the folder is theirs."""
    folder.chmod(0o755)
    if os.geteuid() != 0:
        return {}
    known = {user.pw_name: user for user in pwd.getpwall()}
    user = known.get("postgres") or known["nobody"]
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
