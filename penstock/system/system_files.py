"""Files of the kernel under ``/proc`` and ``/sys``, any of which may be missing or refused.

Every reader gives None for what is not there: containers, older kernels and other systems have only some of them. The
root folder can be another one, so that tests describe machines that they do not run on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["SystemFiles"]

_MOST_BYTES: Final = 1 << 22
"""Most of a file that is read: /proc/cpuinfo of 512 cores has 1 MB."""


class SystemFiles:
    """Reads files of the kernel.

    ``root``: the folder in which ``proc``, ``sys`` and ``dev`` are.
    """

    def __init__(self, root: str | Path = "/") -> None:
        self.root = str(root).rstrip("/")

    def find(self, path: str) -> str:
        """Return the path at which ``path``, which begins with a slash, is to be found."""
        return self.root + path

    def read(self, path: str) -> str | None:
        """Return the text of a file, without white space at its ends; None if it cannot be read."""
        # os.open instead of open(): a third of the time, and a sampler reads many files.
        try:
            descriptor = os.open(self.root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None
        try:
            content = os.read(descriptor, 4096)
            if len(content) == 4096 or b"\n" in content:  # kernel files may come in pieces, whatever their size
                parts = [content]
                while part := os.read(descriptor, 65_536):
                    parts.append(part)
                    if sum(map(len, parts)) > _MOST_BYTES:
                        break
                content = b"".join(parts)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return content.decode("utf-8", "replace").strip()

    def read_int(self, path: str) -> int | None:
        """Return the number that a file holds; None if it holds none."""
        return _parse_int(self.read(path))

    def read_pairs(self, path: str) -> dict[str, int]:
        """Lines of a name and a number, as in ``/proc/meminfo`` and ``cpu.stat``; kB become bytes."""
        pairs = {}
        for line in (self.read(path) or "").splitlines():
            name, *words = line.split()
            number = _parse_int(words[0]) if words else None
            if number is not None:
                pairs[name.rstrip(":")] = number * 1024 if words[1:] == ["kB"] else number
        return pairs

    def list_folder(self, path: str) -> list[str]:
        """Names in a folder, in no order; empty if it cannot be read."""
        try:
            return os.listdir(self.root + path)  # noqa: PTH208  # names alone are wanted, and often
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        return Path(self.root + path).exists()


def _parse_int(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None
