"""A converted store and its sidecar pack: the fields, keys and class names for which the container has no place.

::

    photos                 image, label as a folder with the name of its class; keys are paths of files
    photos/.fields         JSON: which container the sidecar belongs to (its fingerprint), in which order
    photos/.fields.lmdb    the other fields, the class names and the keys, in the order of the source

``ps.open`` joins them: it gives the records as they were in the source of the conversion. Other programs read the
container alone. Written by :mod:`penstock.pack.conversion.run`: from before the container is in its place until the
pack is complete, the file says that it is not, and the container cannot be opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import IncompleteStoreError, StoreError
from penstock.sample import Array, Blob, Record, Schema
from penstock.stores.base import Indices, Store
from penstock.stores.common.regular_file import read_json, remove_tree, replace_json
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.location import Location
from penstock.stores.problems import Problem
from penstock.stores.writing import SIDECAR, SIDECAR_PACK

__all__ = ["NUMBER", "JoinedStore", "Sidecar", "check_sidecar", "join", "sidecar_location"]

NUMBER: Final = "number in the container"
"""The field of the sidecar pack that holds the number of each record in the container."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What the file beside a container says about its sidecar pack."""

    fingerprint: str  # of the container that was written
    fields: tuple[str, ...]  # all fields, in the order of the source

    def write(self, location: Location) -> None:
        """Write the file beside the container."""
        _write(location, {"fingerprint": self.fingerprint, "fields": list(self.fields)})

    @staticmethod
    def begin(location: Location) -> None:
        """Say that the container, which may not be in its place yet, is not complete; remove an older pack."""
        _write(location, {"unfinished": True})
        with contextlib.suppress(OSError):
            remove_tree(location.sidecar(SIDECAR_PACK))

    @classmethod
    def read(cls, location: Location) -> Sidecar | None:
        """Return what the file says; None if there is none.

        Raises
        ------
        IncompleteStoreError
            If the conversion is not finished.
        StoreError
            If it is damaged.
        """
        path = location.sidecar(SIDECAR)
        try:
            entry = read_json(path)
            if entry.get("unfinished") is True:
                raise IncompleteStoreError(  # noqa: TRY301  # a StoreError is an OSError
                    "the conversion that wrote this container was not finished, and fields are missing; convert again "
                    f"to resume it, or remove {path.name} to read the container alone",
                    store=str(location),
                )
            return cls(str(entry["fingerprint"]), tuple(map(str, entry["fields"])))
        except FileNotFoundError:
            return None
        except IncompleteStoreError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{path.name}, which names its other fields, is damaged: {error}", store=str(location)
            ) from error

    @staticmethod
    def remove(location: Location) -> None:
        """Remove the file, and the pack that it names."""
        location.sidecar(SIDECAR).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            remove_tree(location.sidecar(SIDECAR_PACK))


def _write(location: Location, entry: Mapping[str, object]) -> None:
    path = location.sidecar(SIDECAR)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_json(path, entry)


def sidecar_location(location: Location) -> Location:
    """Return where the sidecar pack of a container lies."""
    return Location.from_path("lmdb", location.sidecar(SIDECAR_PACK))


def join(store: Store) -> Store:
    """The store itself, or joined with its sidecar pack if there is one.

    Raises StoreError if the sidecar is damaged or unfinished, or belongs to another container than this one.
    """
    try:
        sidecar = Sidecar.read(store.location)
    except StoreError:
        store.close()
        raise
    if sidecar is None:
        return store
    if sidecar.fingerprint != store.fingerprint():
        store.close()
        raise StoreError(
            f"the container was changed since {store.location.sidecar(SIDECAR).name} was written, which names its "
            "other fields; convert again, or remove that file to read the container alone",
            store=store.url,
        )
    return JoinedStore(store, LmdbStore(sidecar_location(store.location)), sidecar.fields)


def check_sidecar(location: Location) -> Iterator[Problem]:
    """Everything that is wrong with the sidecar pack of a container; nothing where it has none."""
    try:
        if Sidecar.read(location) is None:
            return
    except StoreError as error:
        yield Problem(error.message)
        return
    for problem in LmdbStore.check(sidecar_location(location)):
        yield replace(problem, reason=f"in its sidecar pack: {problem.reason}")


class JoinedStore(Store):
    """A container and its sidecar pack, as one store; made by :func:`join`.

    Parameters
    ----------
    container : Store
        The container; closed with this store.
    extra : LmdbStore
        The sidecar pack. Its fields replace those of the same name.
    fields : sequence of str
        The order of the fields.
    """

    def __init__(self, container: Store, extra: LmdbStore, fields: Sequence[str]) -> None:
        super().__init__(container.location, **container.options)
        self.kind = container.kind  # type: ignore[misc]  # a store of the kind of its container
        self.container, self._extra = container, extra
        self._problems, self._unreadable, self._skipped = container.problems, container.unreadable, container.skipped
        self._fields = tuple(fields)
        held = {**container.schema.fields, **extra.schema.fields}
        names = [name for name in self._fields if name in held]
        self._schema = Schema({name: held[name] for name in names})
        self._numbers: Array = extra.column(NUMBER)
        self._in_container = tuple(name for name in names if name not in extra.schema)

    @property
    def schema(self) -> Schema:
        """The fields of the source."""
        return self._schema

    @property
    def description(self) -> str:
        """That of the container."""
        found = f"{self.container.description}; " if self.container.description else ""
        others = [name for name in self._extra.schema.fields if name != NUMBER]
        return f"{found}keys{' and ' if others else ''}{', '.join(others)} from its sidecar pack"

    def __len__(self) -> int:
        return len(self._extra)

    def read(self, indices: Indices) -> list[Record]:
        """The records; see :meth:`Store.read`."""
        self._refuse_closed()
        numbers = self._check_indices(indices)
        records = []
        held = self.container.read(self._numbers[numbers].tolist())
        for own, extra in zip(held, self._extra.read(numbers), strict=True):
            values = {**own.fields, **extra.fields}
            records.append(Record(extra.index, extra.key, {name: values[name] for name in self._schema.fields}))
        return records

    def blobs(self, field: str, indices: Indices) -> Sequence[Blob]:
        """Return one large field; see :meth:`Store.blobs`."""
        store, numbers = self._choose(field, indices)
        return store.blobs(field, numbers)

    def pixels(self, field: str, indices: Indices) -> Sequence[Array]:
        """Return the images of a field of pixels; see :meth:`Store.pixels`."""
        store, numbers = self._choose(field, indices)
        return store.pixels(field, numbers)

    def rows(self, field: str, indices: Indices) -> Array | None:
        """Return small arrays of fixed shape; see :meth:`Store.rows`."""
        store, numbers = self._choose(field, indices)
        return store.rows(field, numbers)

    def lacks_value(self, field: str, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which records lack a value, as the one of the two that has the field says."""
        store, numbers = self._choose(field, indices)
        return store.lacks_value(field, numbers)

    def _choose(self, field: str, indices: Indices) -> tuple[Store, Array]:
        """Return which of the two has a field, and the numbers of some records there."""
        self._refuse_closed()
        self.schema[field]
        numbers = np.array(self._check_indices(indices), np.int64)
        return (self.container, self._numbers[numbers]) if field in self._in_container else (self._extra, numbers)

    @property
    def prefetches(self) -> bool:
        """Whether the container looks ahead."""
        return self.container.prefetches

    def prefetch(self, indices: Indices) -> bool | None:
        """Have the container look ahead to records."""
        return self.container.prefetch(self._numbers[self._check_indices(indices)])

    def column(self, field: str) -> Array:
        """A small field of all records; see :meth:`Store.column`."""
        self._refuse_closed()
        self.schema[field]
        if field not in self._in_container:
            return self._extra.column(field)
        column: Array = self.container.column(field)[self._numbers]
        column.flags.writeable = False
        return column

    def _iter_values(self, field: str) -> Iterator[object]:
        """Yield the values of the container, in the order of the source, or those of the pack beside it."""
        if field not in self._in_container:
            return iter(self._extra.ragged_column(field))
        found = self.container.ragged_column(field)
        return (found[number] for number in self._numbers.tolist())

    def keys(self) -> Sequence[str]:
        """Return the keys of the source."""
        self._refuse_closed()
        return self._extra.keys()

    def digest(self) -> str:
        """The digests of the container and of the pack beside it."""
        return f"{self.container.digest()}+{self._extra.digest()}"

    def fingerprint(self) -> str:
        """The fingerprints of the container and of the pack beside it."""
        return f"{self.container.fingerprint()}+{self._extra.fingerprint()}"

    def close(self) -> None:
        """Close both."""
        super().close()
        self.container.close()
        self._extra.close()

    def __reduce__(self) -> tuple[object, ...]:
        self._refuse_closed()
        return JoinedStore, (self.container, self._extra, self._fields)
