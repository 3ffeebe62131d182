"""A place in object storage to which objects are written, in parts that are sent at once.

An object is there as a whole or not at all. Parts are repeated by obstore, which alone knows them; whoever calls this
compares what is there with what was sent (:mod:`.remote.upload`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from penstock.errors import StoreError, StoreNotFoundError
from penstock.registry import require
from penstock.stores.common.per_process import PerProcess
from penstock.stores.remote.object_store import ObjectInfo, Place
from penstock.stores.remote.storage_client import StorageOptions

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["WritablePlace"]

_PART_NBYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 8
"""Parts of an object that are sent at once."""
_RETRIES: Final = 8
_TIMEOUT: Final = timedelta(minutes=3)
"""For one part: parts that are sent at once share the line."""
_MOST_PARTS: Final = 9000
"""S3 and Google Cloud allow 10,000."""


class WritablePlace(Place):
    """A place that is also written to; see :class:`~penstock.stores.remote.object_store.Place`."""

    def __init__(self, url: str, options: StorageOptions) -> None:
        super().__init__(url, options)
        self._writing = PerProcess(functools.partial(self._make_client, retries=_RETRIES, timeout=_TIMEOUT))

    def put(self, name: str, parts: Callable[[], Iterable[bytes | memoryview]], nbytes: int) -> ObjectInfo:
        """Write an object, which is there as a whole or not at all.

        Parameters
        ----------
        name : str
            Its name below the URL.
        parts : callable
            Gives its bytes in order; called again where the whole must be sent again.
        nbytes : int
            Their number.

        Returns
        -------
        ObjectInfo
            Of the object that is there now.

        Raises
        ------
        StoreError
            If it cannot be written within the limit of attempts, or writing is not allowed.
        """
        obstore = require("obstore")
        chunk = max(_PART_NBYTES, -(-nbytes // _MOST_PARTS))
        parallel = max(1, _PARTS_AT_ONCE * _PART_NBYTES // chunk)

        def send(client: ObjectStore) -> None:
            if nbytes > chunk:
                obstore.put(client, self._path(name), iter(parts()), chunk_size=chunk, max_concurrency=parallel)
            else:
                obstore.put(client, self._path(name), b"".join(parts()), use_multipart=False)

        self._repeat(name, send, self._writing)
        info = self.find(name)
        if info is None or info.nbytes != nbytes:
            raise StoreError(
                f"{nbytes} bytes were sent, and {0 if info is None else info.nbytes} are there: another program writes "
                "here, or the place is not an object store",
                store=self.name(name),
            )
        return info

    def remove(self, name: str) -> None:
        """Remove an object, if it is there.

        Raises
        ------
        StoreError
            If that is not allowed, or the place cannot be asked.
        """
        obstore = require("obstore")
        with contextlib.suppress(StoreNotFoundError):
            self._repeat(name, lambda client: obstore.delete(client, self._path(name)), self._writing)
