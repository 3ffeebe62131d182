"""Servers for tests that are Go modules in this folder; each is built once, into ``target/servers``.

``python -m tests.servers.go_programs NAME`` only builds one, for CI.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

__all__ = ["build_go"]

_SOURCES: Final = Path(__file__).parent
_BUILT: Final = Path(__file__).parent.parent.parent / "target" / "servers"
_OLDEST_GO: Final = (1, 21)  # the first one that fetches the version that a module asks for
PACKAGES: Final = {"mongo": ".", "versitygw": "github.com/versity/versitygw/cmd/versitygw"}
"""What is built, by folder."""


def build_go(name: str, *, is_required: bool = False) -> str:
    """The path of the program; skips the test without Go, or if the modules cannot be fetched.

    ``is_required``: in CI that is an error.
    """
    folder = _SOURCES / name
    sources = sorted(path for path in folder.iterdir() if path.suffix in {".go", ".mod", ".sum"})
    digest = hashlib.blake2b(b"".join(source.read_bytes() for source in sources), digest_size=8).hexdigest()
    program = _BUILT / f"{name}-{digest}"
    if program.exists():
        return str(program)
    if reason := _why_not_built():
        pytest.skip(f"no server for tests ({name}): {reason}")
    _BUILT.mkdir(parents=True, exist_ok=True)
    with (_BUILT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several runners of pytest-xdist: the first one builds
        if not program.exists():
            partial = f"{program}.partial"
            command = ["nice", "go", "build", "-mod=mod", "-o", partial, PACKAGES[name]]
            built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if built.returncode:
                is_error = is_required and os.environ.get("CI")
                assert not is_error, f"the server for tests ({name}) was not built: {built.stderr}"
                pytest.skip(f"no server for tests ({name}): {built.stderr.strip()[-300:]}")
            Path(partial).rename(program)
    return str(program)


def _why_not_built() -> str:
    if shutil.which("go") is None:
        return "Go is not installed"
    found = re.search(r"go(\d+)\.(\d+)", subprocess.run(["go", "version"], capture_output=True, text=True).stdout)  # noqa: PLW1510
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_GO:
        return f"Go {'.'.join(map(str, _OLDEST_GO))} or newer is needed"
    return ""


if __name__ == "__main__":
    try:
        build_go(sys.argv[1], is_required=sys.argv[1] == "mongo")
    except pytest.skip.Exception as error:
        sys.stderr.write(f"{error}\n")
