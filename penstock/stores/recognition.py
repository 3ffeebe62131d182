"""Which kinds of stores cannot be at a path, found by a few bytes and names, without the modules of the kinds.

:func:`penstock.stores.find` asks here before it imports a kind and calls its ``recognises``, which decides: a kind that
is not in :data:`MAY_BE` is always imported. What opening a pack or a folder of images imports is therefore little. The
conformance suite compares each test with ``recognises``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from penstock.stores.common.regular_file import has_magic
from penstock.stores.lmdb.files import FILE, HASHES, LOCK, looks_like_lmdb
from penstock.stores.shards.shard_index import INDEX, SPLITS

__all__ = ["MAY_BE"]

_ARROW_NAMES: Final = ("state.json", "dataset_dict.json")
_LANCE_NAMES: Final = ("_versions",)
_PACK_NAMES: Final = (FILE, LOCK, HASHES)
_INDEX_NAMES: Final = (INDEX, *(f"{part}/{INDEX}" for part in SPLITS))
_RECORDIO_MAGIC: Final = bytes.fromhex("0a23d7ce")


def _has_any(path: str, names: Sequence[str]) -> bool:
    return any(os.path.lexists(os.path.join(path, name)) for name in names)  # noqa: PTH118  # names of a text


def _may_be_pack(path: str) -> bool:
    return _has_any(path, _PACK_NAMES) or looks_like_lmdb(path)


def _may_be_layout(path: str) -> bool:
    """Whether it is an LMDB environment without hashes of pages, which every finished pack has."""
    file = os.path.join(path, FILE) if os.path.isdir(path) else path  # noqa: PTH112, PTH118  # names of a text
    return looks_like_lmdb(file) and not _has_any(path, (HASHES,))


def _may_be_recordio(path: str) -> bool:
    return path.endswith(".idx") or has_magic(path, _RECORDIO_MAGIC)


def _has_index(path: str) -> bool:
    return _has_any(path, _INDEX_NAMES)


def _never(path: str) -> bool:
    del path
    return False


MAY_BE: Final[Mapping[str, Callable[[str], bool]]] = MappingProxyType(
    {
        "lmdb-pickle-index": _may_be_layout,
        "lmdb-pairs": _may_be_layout,
        "lmdb-names": _may_be_layout,
        "lmdb-datum": _may_be_layout,
        "lmdb": _may_be_pack,
        "recordio": _may_be_recordio,
        "hdf5": os.path.isfile,
        "mongodb": _never,
        "gridfs": _never,
        "beton": os.path.isfile,
        "mds": _has_index,
        "litdata-arrow": _has_index,
        "litdata": _has_index,
        "arrow": lambda path: os.path.isfile(path) or _has_any(path, _ARROW_NAMES),  # noqa: PTH113  # of a text
        "lance": lambda path: _has_any(path, _LANCE_NAMES),
        "files": os.path.isdir,
    }
)
"""For a kind, whether it may be at a path (which exists); False: its ``recognises`` would be False, too."""
