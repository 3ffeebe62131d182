"""Lists of keys as files, and the records of a store that such a list names.

::

    keys.txt            cats/4.jpg                                     one key a line
    quarantine.jsonl    {"key": "cats/4.jpg", "reason": "blurred"}     an object a line, as a loader's error_log writes

Called by users, by ``pack(keys=...)`` and by the viewer's exports.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, RecordKeyError
from penstock.stores.base import Store
from penstock.stores.common.table_files import Table
from penstock.wording import counted

__all__ = ["KeysLike", "find_keys", "format_key_lines", "format_keys", "read_keys", "refuse_unknown_keys"]

KeysLike = str | os.PathLike[str] | Sequence[str]
"""Keys, or the file that has them."""
_SHOWN: Final = 5
_LINES: Final = (".jsonl", ".ndjson")


def find_keys(store: Store, keys: KeysLike, *, exclude: bool = False) -> NDArray[np.int64]:
    """The indices of the records with some keys, or of all others.

    Parameters
    ----------
    store : Store
        The store; ``dataset.store`` of a :class:`~penstock.StoreDataset`. No record is read.
    keys : str, path or sequence of str
        Keys, or a file of them in UTF-8: ``.jsonl`` has a JSON object with ``"key"`` in each line, as the ``error_log``
        of a loader and the quarantine list of :func:`penstock.view`; any other file has a key in each line.
    exclude : bool
        False: the records with these keys, in the order of ``keys``; several records with one key are all among them.
        True: all other records, in the order of the store; keys that the store does not have are allowed, since they
        may be of another store, but not if it has none of them.

    Returns
    -------
    ndarray, int64, shape (n,)
        Owned by the caller. For :class:`~penstock.Subset` and for samplers; the state of a loader over such a subset
        is refused by a loader over another one.

    Raises
    ------
    RecordKeyError
        If the store lacks a key; with ``exclude``, if it lacks all of them.
    ArgumentError
        If the file cannot be read, or a line of it has no key.

    Examples
    --------
    >>> good = ps.find_keys(dataset.store, "quarantine.jsonl", exclude=True)  # doctest: +SKIP
    >>> loader = ps.DataLoader(ps.Subset(dataset, good), batch_size=64)  # doctest: +SKIP
    """
    listed = read_keys(keys)
    wanted: dict[str, list[int]] = {key: [] for key in listed}
    for index, key in enumerate(store.keys()):
        if key in wanted:
            wanted[key].append(index)
    if exclude:
        if listed and not any(wanted.values()):
            _refuse(listed, f"has none of the {counted(len(wanted), 'key')} to leave out", store.url)
        is_kept = np.ones(len(store), bool)
        is_kept[list(itertools.chain.from_iterable(wanted.values()))] = False
        return np.flatnonzero(is_kept)
    refuse_unknown_keys([key for key, found in wanted.items() if not found], store.url)
    return np.array([index for key in listed for index in wanted[key]], np.int64)


def read_keys(keys: KeysLike) -> list[str]:
    """The keys of a list or of a file, in order; see :func:`find_keys`, also for what is raised."""
    if not isinstance(keys, str | os.PathLike):
        listed: list[object] = list(keys)
        if wrong := [key for key in listed if not isinstance(key, str)]:
            raise ArgumentError(f"keys must be texts, got {wrong[0]!r:.100}")
        return list(keys)
    path = Path(keys)
    if path.suffix.lower() in _LINES:
        return list(_read_objects(path))
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ArgumentError(f"the file of keys {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ArgumentError(f"the file of keys {path} must be UTF-8, with a key in each line: {error}") from error
    lines = (line.removesuffix("\r") for line in text.split("\n"))  # str.splitlines divides at other characters too
    return [line for line in lines if line]


def _read_objects(path: Path) -> Iterator[str]:
    try:
        for row in Table(path).rows():
            key = row.values.get("key")
            if not isinstance(key, str):
                raise ArgumentError(
                    f"line {row.line} of {path.name} must have a text under 'key', got {key!r:.100}; a sample that is "
                    "no record of a store has no key, remove its line"
                )
            yield key
    except OSError as error:  # a StoreError too
        raise ArgumentError(f"the file of keys {path} cannot be read: {error}") from error


def refuse_unknown_keys(keys: Sequence[str], where: str) -> None:
    """Raise :class:`RecordKeyError`, which names the first of ``keys``, if there are any."""
    if keys:
        _refuse(keys, f"has no record for {counted(len(keys), 'key')}", where)


def _refuse(keys: Sequence[str], what: str, where: str) -> None:
    shown = ", ".join(f"{key!r:.100}" for key in keys[:_SHOWN])
    more = f" and {len(keys) - _SHOWN:,} more" if len(keys) > _SHOWN else ""
    raise RecordKeyError(f"the store {what}: {shown}{more}", store=where)


def format_keys(keys: Iterable[str]) -> str:
    """Return the text of a file with a key in each line.

    Raises
    ------
    ArgumentError
        If a key cannot be a line of text: it is empty, or has a line break or characters that are not Unicode.
    """
    lines = list(keys)
    for key in lines:
        if not key or "\n" in key or key[-1] == "\r" or not (key.isascii() or _is_unicode(key)):
            raise ArgumentError(f"the key {key!r:.100} cannot be a line of a text file; export a .jsonl file instead")
    return "\n".join([*lines, ""])


def format_key_lines(records: Iterable[Mapping[str, object]]) -> str:
    """Return the text of a ``.jsonl`` file, with an object for each record; any key can be in it."""
    return "".join(f"{json.dumps(record)}\n" for record in records)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
