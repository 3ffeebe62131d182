"""Parts of a sharded pack: runs of a source's records, each written as a whole pack by a task of Ray.

::

    records 0 .. n-1  ──task──> DST/00000.lmdb ─┐
    records n .. 2n-1 ──task──> DST/00001.lmdb ─┼─> manifest.json, by this process, when all are there
    ...                                         ┘

Which records a part has depends on the source and the size of shards, not on the cluster. A part that is finished is
found again by its origin, and one that was begun is resumed where it lies. :mod:`.packs` and :mod:`.conversions` say
what a task does.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.errors import ArgumentError, StoreError
from penstock.pack.on_ray.tasks import connected, find_node, is_seen, list_blind_nodes, run_on_ray
from penstock.pack.staging import Staging, staged
from penstock.stores import StoreLike
from penstock.stores.common.journal import open_locked
from penstock.stores.common.lmdb.pages import LOCK
from penstock.stores.lmdb_pack.manifest import ShardColumns
from penstock.stores.lmdb_pack.sharded_writer import ShardedWriter, name_shard
from penstock.stores.lmdb_pack.store import LmdbStore
from penstock.stores.location import Location
from penstock.stores.writing import UNFINISHED, CommittedRecords

__all__ = ["SHARD_NBYTES", "Parts", "WrittenPart", "choose_samples", "write_parts"]

SHARD_NBYTES: Final = 256 * 10**6
"""The size of shards where none is given."""
_SAMPLES: Final = 32
_LOCK_S: Final = 30.0
_PAUSE_S: Final = 0.1
T_job = TypeVar("T_job")
T_report = TypeVar("T_report")


@dataclass(frozen=True, slots=True)
class Parts:
    """How a source is divided, and where its parts are written."""

    folder: str  # the folder or URL of the sharded pack
    options: Mapping[str, object] | None = field(repr=False)  # the ``storage_options`` of a URL
    records: int  # number of records of each part but the last
    total: int  # number of records of the source
    marker: bytes | None
    """What the file :data:`~penstock.stores.writing.UNFINISHED` in the folder contains, by which a task sees that its
    node has the same folder; None for a URL."""

    @classmethod
    def divide(cls, location: Location, total: int, sizes: Sequence[int], shard_nbytes: int) -> Parts:
        """Divide records, some of which have these sizes, so that a part has at most about so many bytes.

        The number of records of a part is a power of two: a few records of other sizes do not change it.
        """
        mean = max(1, sum(sizes) // max(1, len(sizes)))
        records = 1 << max(0, (shard_nbytes // mean).bit_length() - 1)
        if isinstance(location.remote, Staging):
            return cls(location.remote.url, location.remote.options.options or None, records, total, None)
        path = location.local_path / UNFINISHED
        return cls(location.path, None, records, total, path.read_bytes() if path.exists() else None)

    @property
    def count(self) -> int:
        """The number of parts."""
        return -(-self.total // self.records)

    def get_range(self, number: int) -> range:
        """The numbers of the records of a part."""
        return range(number * self.records, min((number + 1) * self.records, self.total))

    @contextlib.contextmanager
    def writing(self, number: int, *, overwrite: bool) -> Iterator[StoreLike]:
        """Yield in a task where a part is written; it is sent to the URL at the end of the block.

        Raises ArgumentError if the folder of this node is another one than that of the driver.
        """
        if self.marker is not None and not is_seen(Path(self.folder, UNFINISHED), self.marker):
            raise _make_unshared_error(self.folder, find_node())
        if self.marker is not None:
            _wait_for_writer(Path(self.folder, name_shard(number), LOCK))
        with staged(f"{self.folder}/{name_shard(number)}", self.options, overwrite=overwrite) as target:
            yield target

    def open(self, number: int) -> LmdbStore:
        """Open a part that is written."""
        path = f"{self.folder}/{name_shard(number)}"
        store = stores.open(path) if self.options is None else stores.open(path, storage_options=self.options)
        assert isinstance(store, LmdbStore), "a task wrote it"
        return store


@dataclass(frozen=True, slots=True)
class WrittenPart(Generic[T_report]):
    """What a task wrote."""

    held: CommittedRecords  # records, bytes and entries that were left out
    content: str = ""  # the hash of its content; empty where it has no record, and no pack
    report: T_report | None = None  # that of the task; None where it has no record
    keys: NDArray[np.uint64] | None = None  # hashes of the keys, where those are compared when all parts are written


def choose_samples(total: int) -> list[int]:
    """The numbers of some records all over a source, by which sizes are estimated."""
    spread: list[int] = np.unique(np.linspace(0, total - 1, min(total, _SAMPLES)).astype(np.int64)).tolist()
    return spread


def write_parts(
    work: Callable[[T_job, int], WrittenPart[T_report]],
    job: T_job,
    parts: Parts,
    writer: ShardedWriter | None,
    cpus: int,
    report: Callable[[CommittedRecords], None],
) -> list[WrittenPart[T_report]]:
    """Write all parts in tasks of Ray, and give them to the writer, which is not finished here.

    Parameters
    ----------
    work, job : callable and object
        ``work(job, number)`` writes a part, or finds it finished.
    parts : Parts
        The parts.
    writer : ShardedWriter, optional
        The writer of the pack; None where it is finished.
    cpus : int
        CPUs of a task.
    report : callable
        Called with what all parts hold so far, after each.

    Raises
    ------
    ArgumentError
        If the folder is not on all nodes; nothing is written then.
    """
    written: list[WrittenPart[T_report]] = []
    shards, held = ShardColumns(), CommittedRecords()
    with connected():
        if parts.marker is not None and writer is not None:
            blind = list_blind_nodes(Path(parts.folder, UNFINISHED))
            if blind:
                writer.discard()
                raise _make_unshared_error(parts.folder, ", ".join(blind))
        with contextlib.closing(run_on_ray(work, job, range(parts.count), cpus)) as results:
            for number, part in enumerate(results):
                if part.content:
                    if (
                        parts.options is None
                        and parts.marker is not None
                        and not Path(parts.folder, name_shard(number)).exists()
                    ):
                        raise StoreError(
                            "a task has written this part, and it is not here", store=parts.folder, part=number
                        )
                    shards.append(name_shard(number), part.held.records, part.content, part.held.nbytes)
                written.append(part)
                held += part.held
                report(held)
    if writer is not None:
        writer.adopt(shards, held)
    return written


def _wait_for_writer(lock: Path) -> None:
    """Wait, for some time, until a task that was cancelled or lost has let go of a part."""
    until = time.monotonic() + _LOCK_S
    while lock.exists() and time.monotonic() < until:
        with contextlib.suppress(StoreError):
            os.close(open_locked(lock, str(lock.parent)))
            return
        time.sleep(_PAUSE_S)


def _make_unshared_error(folder: str, node: str) -> ArgumentError:
    return ArgumentError(
        f"the destination must be a folder that all nodes of the Ray cluster share, or a URL such as s3://..., and "
        f"{folder} of this machine is not on node {node}"
    )
