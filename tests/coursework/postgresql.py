"""A private PostgreSQL server: in a folder of its own, reached by a socket, without the network."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

NEEDED = ("initdb", "pg_ctl")


def programs() -> Path | None:
    """The folder of the newest server that is installed, wherever Debian or others put it."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True
    )
    on_path = shutil.which("initdb")
    if on_path:
        folders.append(Path(on_path).parent)
    return next((f for f in folders if all((f / name).is_file() for name in NEEDED)), None)


class Server:
    """It runs while the `with` block does."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.databases = 0
        # Not under pytest's folder, which is closed to the user that the server runs as.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))

    def __enter__(self) -> Server:
        try:
            owner = self._owner()
            if owner:
                os.chown(self.folder, owner["user"], owner["group"])
            self._run(
                "initdb", "--no-sync", "--auth=trust", "--username=course", "--encoding=UTF8",
                "--locale=C",
            )  # fmt: skip
            settings = f"-c listen_addresses='' -c fsync=off -k {self.folder}"
            self._run("pg_ctl", "--wait", f"--log={self.folder / 'log'}", "-o", settings, "start")
        except BaseException:
            shutil.rmtree(self.folder)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._run("pg_ctl", "--mode=immediate", "stop")
        shutil.rmtree(self.folder)

    def new_database(self) -> str:
        """The `db_url` of an empty database."""
        import psycopg

        self.databases += 1
        name = f"attention_{self.databases}"
        with psycopg.connect(
            host=str(self.folder), user="course", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://course@/{name}?host={self.folder}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), "-D", str(self.folder / "data"), *arguments]
        with tempfile.TemporaryFile() as said:  # a pipe would stay open in the server
            ran = subprocess.run(
                command, cwd=self.folder, stdout=said, stderr=said, **self._owner()
            )
            said.seek(0)
            assert ran.returncode == 0, said.read().decode()

    @staticmethod
    def _owner() -> dict[str, Any]:
        """Whom to run it as: PostgreSQL refuses to be root."""
        if os.getuid() != 0:
            return {}
        names = {entry.pw_name for entry in pwd.getpwall()}
        owner = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
        return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
