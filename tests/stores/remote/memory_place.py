"""A place without a server: files in fsspec's memory, below ``memory://bucket``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import fsspec

__all__ = ["URL", "clear", "put", "put_folder", "remove"]

URL: Final = "memory://bucket"


def clear() -> None:
    """Remove everything."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def put(files: Mapping[str, bytes]) -> None:
    """Write files by name below the bucket."""
    system = fsspec.filesystem("memory")
    for name, content in files.items():
        system.pipe_file(f"/bucket/{name}", content)


def put_folder(folder: Path, name: str) -> None:
    """Write all files below a folder of this machine under a name."""
    put({f"{name}/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()})


def remove(name: str) -> None:
    """Remove a file."""
    fsspec.filesystem("memory").rm_file(f"/bucket/{name}")
