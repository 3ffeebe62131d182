"""Files in which loaders say what they do: a folder of the user, and a file of each loader.

::

    loader   LiveFile.append ──> FOLDER/HOST-PID-NUMBER.jsonl   a header, then a line a second
    viewer   list_files, read_from

A line is a JSON object. A file is locked for as long as its process writes it, and removed at its end: one that is not
locked was left by a process that was killed. Who reads a file reads text only, of the user's own files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock import system
from penstock.errors import ArgumentError
from penstock.wording import to_plain

__all__ = ["FOLDER_VARIABLE", "LiveFile", "Part", "find_folder", "list_files", "read_from", "remove_stale"]

FOLDER_VARIABLE: Final = "PENSTOCK_VIEW_DIR"
"""Names the folder, such as one that the machines of a job share."""
KEPT_LINES: Final = 600
"""Newest lines that a file holds at least, ten minutes; the others are removed when it has twice as many."""
_MOST_NBYTES: Final = 16 << 20
_MOST_LINE: Final = 64 << 10
_STALE_S: Final = 24 * 3600.0


def find_folder(*, make: bool = False) -> Path:
    """The folder of this user: :data:`FOLDER_VARIABLE`, else one of the session or in the folder for temporary files.

    ``make``: make it, for this user alone, if it does not exist. Raises OSError if it cannot be made. Raises
    ArgumentError if it is not a folder, or belongs to another user.
    """
    given = os.environ.get(FOLDER_VARIABLE)
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if given:
        folder = Path(given)
    elif session and os.access(session, os.W_OK):
        folder = Path(session) / "penstock"
    else:
        folder = Path(tempfile.gettempdir()) / f"penstock-view-{os.getuid()}"
    if make:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        found = folder.stat() if given else folder.lstat()
    except FileNotFoundError:
        return folder
    if not stat.S_ISDIR(found.st_mode):
        raise ArgumentError(f"{folder} must be a folder; set {FOLDER_VARIABLE} to another one")
    if not given and (found.st_uid != os.getuid() or found.st_mode & 0o022):
        raise ArgumentError(
            f"{folder} belongs to another user, or others may write to it; set {FOLDER_VARIABLE} to a folder of yours"
        )
    return folder


class LiveFile:
    """A file that this process writes; a forked child does not.

    ``path``: in the folder of :func:`find_folder`; a file of this name is replaced. ``header``: the first line. Raises
    OSError if it cannot be written.
    """

    def __init__(self, path: Path, header: Mapping[str, object]) -> None:
        self.path, self._header = path, _encode(header)
        self._lines: deque[bytes] = deque(maxlen=KEPT_LINES)
        self._count, self._pid = 0, os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(self._fd, self._header)
        system.watch(self)

    def renew_in_child(self) -> None:
        """Let go of the file in a forked child, which would keep it locked."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def append(self, values: Mapping[str, object]) -> None:
        """Add a line; nothing where the file is another process's, or closed."""
        if self._fd < 0:
            return
        line = _encode(values)
        self._lines.append(line)
        self._count += 1
        if self._count >= 2 * KEPT_LINES:
            self._count, line = KEPT_LINES, b"".join([self._header, *self._lines])
            os.ftruncate(self._fd, 0)
        os.write(self._fd, line)

    def close(self) -> None:
        """Remove the file; nothing in a forked child. Idempotent."""
        if self._fd >= 0 and os.getpid() == self._pid:
            self.path.unlink(missing_ok=True)
            self.renew_in_child()


def _encode(values: Mapping[str, object]) -> bytes:
    return json.dumps(to_plain(dict(values)), separators=(",", ":")).encode() + b"\n"


def list_files(folder: Path) -> list[Path]:
    """Return the files of loaders in a folder, in the order of their names."""
    return sorted(folder.glob("*.jsonl"))


def remove_stale(folder: Path) -> None:
    """Remove files that killed processes left there more than a day ago."""
    for path in list_files(folder):
        with contextlib.suppress(OSError, ArgumentError):
            if time.time() - path.stat().st_mtime > _STALE_S and not read_from(path).is_alive:
                path.unlink()


class Part(NamedTuple):
    """What was read of a file."""

    header: dict[str, object]
    lines: list[dict[str, object]]  # without those that are no JSON objects
    offset: int  # up to which the file was read
    is_alive: bool  # whether its process lives; True where that cannot be seen


def read_from(path: Path, offset: int = 0) -> Part:
    """Return what has followed in a file since ``offset``; everything, if old lines were removed.

    Raises FileNotFoundError if there is no such file: its loader has ended. Raises OSError or ArgumentError if it
    cannot be read; is no file of a loader; belongs to another user.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ArgumentError(f"{path} must be a file that a loader writes, it is none")
        if found.st_uid != os.getuid():
            raise ArgumentError(f"{path} belongs to another user; a viewer reads files of its own user only")
        header = _decode(file.readline(_MOST_LINE))
        if header is None or not isinstance(header.get("penstock"), int):
            raise ArgumentError(f"{path} must be a file that a loader writes, its first line is no header")
        begin = max(file.tell(), offset if offset <= found.st_size else 0, found.st_size - _MOST_NBYTES)
        file.seek(begin)
        text = file.read(_MOST_NBYTES)
        whole = text[: text.rfind(b"\n") + 1]  # a line that is being written comes next time
        lines = [line for each in whole.splitlines() if (line := _decode(each)) is not None]
        return Part(header, lines, begin + len(whole), _is_locked(fd))


def _decode(text: bytes) -> dict[str, object] | None:
    if len(text) >= _MOST_LINE:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # ends with the file
    except OSError:
        return True
    return False
