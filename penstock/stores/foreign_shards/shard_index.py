"""The file ``index.json`` of a folder of shards, and the files that it names. MDS and LitData folders have one.

The file may come from anywhere: its size is limited, and the files that it names must be inside the folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Final

from penstock.errors import ArgumentError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.stores.common.regular_file import open_regular, read_json
from penstock.stores.kinds import INDEX, SPLITS
from penstock.stores.location import Location

__all__ = [
    "INDEX",
    "SPLITS",
    "check_extent",
    "find_splits",
    "join_inside",
    "read_index_head",
    "read_index_json",
    "refuse_parts",
]

_HEAD_NBYTES: Final = 1 << 16


def read_index_json(location: Location) -> dict[str, Any]:
    """Return the object in ``index.json`` of a folder.

    Raises StoreNotFoundError if there is no folder, or no such file in it. Raises StoreFormatError if it is not a JSON
    object.
    """
    path = location.local_path / INDEX
    try:
        index = read_json(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        if location.exists():
            raise StoreFormatError(f"there is no {INDEX} in this folder", store=str(location)) from error
        raise StoreNotFoundError("there is no store at this path", store=str(location)) from error
    except OSError as error:
        raise StoreError(f"{INDEX} cannot be read: {error.strerror}", store=str(location)) from error
    except ValueError as error:
        raise StoreFormatError(f"{INDEX} is not valid: {error}", store=str(location)) from error
    if not isinstance(index, dict):
        raise StoreFormatError(f"{INDEX} must hold an object, got {type(index).__name__}", store=str(location))
    return index


def read_index_head(folder: str | Path) -> bytes:
    """Return the first 64 KiB of ``index.json`` in a folder; empty if there is none."""
    try:
        with os.fdopen(open_regular(Path(folder) / INDEX), "rb") as file:
            return file.read(_HEAD_NBYTES)
    except OSError:
        return b""


def find_splits(folder: str | Path, is_index: Callable[[bytes], bool]) -> list[str]:
    """The names of folders inside ``folder`` whose index is of a kind: the parts of a data set."""
    return [name for name in SPLITS if is_index(read_index_head(Path(folder) / name))]


def join_inside(folder: Path, name: object) -> Path:
    """Return the path of a file that an index names, which must be inside the folder.

    Raises ValueError if it is not the name of a file inside the folder.
    """
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError(f"the name of a file must be a text, got {name!r:.200}")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"a file must be inside the folder, got {name!r:.200}")
    return folder / path


def check_extent(what: str, count: object, nbytes: object) -> tuple[int, int]:
    """The number of samples and of bytes of a file, as an index has them; ValueError if no file can have these."""
    if type(count) is not int or type(nbytes) is not int or not 0 <= count < 1 << 32 or not 0 <= nbytes < 1 << 40:
        raise ValueError(f"{what} cannot have {count!r:.100} samples and {nbytes!r:.100} bytes")
    return count, nbytes


def refuse_parts(location: Location, is_index: Callable[[bytes], bool]) -> None:
    """Raise :class:`ArgumentError` if a folder has no index, and folders inside it have."""
    folder = location.local_path
    if not read_index_head(folder) and (parts := find_splits(folder, is_index)):
        raise ArgumentError(f"this folder has the parts {', '.join(parts)}; open one: {location}/{parts[0]}")
