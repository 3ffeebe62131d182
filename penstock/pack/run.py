"""One run of packing: several threads read, check and hash; one thread writes, in the order of the source.

::

    source ──> [8 records] ──> thread: read, check, encode, hash ──┐
           ──> [8 records] ──> thread: ...                         ├──in order──> writer ──> commits
           ──> [8 records] ──> ...                                 ┘

Called by :func:`penstock.pack`, which opens the source and the writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock.errors import DecodeError, PackError, StoreError
from penstock.escapes import escape_unprintable
from penstock.pack.image_check import check_image
from penstock.pack.transcoding import to_baseline
from penstock.plurals import counted
from penstock.sample import Field, Schema
from penstock.stores.base import Skipped, Store
from penstock.stores.record_names import find_name_clashes
from penstock.stores.writing import Writer

__all__ = [
    "PackProgress",
    "PackRun",
    "add_size_fields",
    "find_clashes",
    "list_skipped",
    "refuse_left_out",
    "refuse_unpackable",
]

_TASK_RECORDS: Final = 8
_PENDING_NBYTES: Final = 64 << 20
_MAX_PENDING: Final = 256
_MAX_LISTED: Final = 100
T_prepared = TypeVar("T_prepared")


@dataclass(frozen=True, slots=True)
class PackProgress:
    """Progress of packing: number of source records done and in all, of bytes of images, and of records left out."""

    done: int
    total: int
    nbytes: int
    skipped: int


@dataclass(frozen=True, slots=True)
class _PreparedRecords(Generic[T_prepared]):
    """The records that one task prepared, in order."""

    records: list[T_prepared | Skipped]
    nbytes: int
    transcoded: int
    kept: int


class PackRun(Generic[T_prepared]):
    """One run of packing: prepares records in threads, and writes them in order."""

    def __init__(
        self,
        source: Store,
        writer: Writer[T_prepared],
        clashing: Mapping[int, str],
        *,
        on_error: str,
        check: str,
        transcode: str,
        replaces: bool,
    ) -> None:
        self._outcome = "the existing pack was removed" if replaces else "nothing was written"
        self._source, self._writer, self._clashing = source, writer, clashing
        self._raises, self._check, self._transcode = on_error == "raise", check, transcode == "baseline"
        self.transcoded = self.kept = 0
        self._images = tuple(name for name in source.schema.blobs if source.schema[name].kind in {"image", "mask"})
        self._adds_size = "width" in add_size_fields(source.schema) and "width" not in source.schema
        self._skipped = list(writer.committed.skipped)
        self._has_failed = self._is_stopped = False

    def run(self, pool: ThreadPoolExecutor, workers: int, report: Callable[[PackProgress], None]) -> None:
        """Pack every record that no earlier run has packed."""
        total = len(self._source)
        done, nbytes = self._writer.committed.consumed, self._writer.committed.nbytes
        for task in _run_in_order(pool, self._prepare, range(done, total), 2 * workers):
            for entry in task.records:
                if isinstance(entry, Skipped):
                    self._skipped.append(entry)
                    self._has_failed = self._has_failed or self._raises
                    self._writer.skip(entry)
                elif not self._has_failed:
                    self._writer.append(entry)
            done += len(task.records)
            nbytes += task.nbytes
            self.transcoded += task.transcoded
            self.kept += task.kept
            report(PackProgress(done, total, nbytes, len(self._skipped)))

    def stop(self) -> None:
        """Make the threads end after the current record."""
        self._is_stopped = True

    def finish(self) -> tuple[Skipped, ...]:
        """Complete the pack, or refuse the source; returns what was left out.

        Raises
        ------
        PackError
            If a record cannot be packed and ``on_error`` is "raise", or there is nothing to pack.
        """
        if self._has_failed:
            self._writer.discard()
            raise _make_refusal(self._source, self._skipped, self._outcome)
        if len(self._skipped) >= len(self._source):
            self._writer.discard()
            raise PackError(
                f"nothing can be packed; {self._outcome}:\n{list_skipped(self._skipped)}", store=self._source.url
            )
        self._writer.finish(self._source.problems)
        return (*self._skipped, *self._source.problems)

    def _prepare(self, indices: Sequence[int]) -> _PreparedRecords[T_prepared]:
        """Read, check and encode some records; runs in the pool."""
        records: list[T_prepared | Skipped] = []
        nbytes = transcoded = kept = 0
        for index in indices:
            if self._is_stopped:
                break
            key = self._source.keys()[index]
            try:
                if index in self._clashing:
                    raise PackError(self._clashing[index])  # noqa: TRY301  # one handler for every refusal
                record = self._source.read([index])[0]
                fields = self._check_images(record.fields)
                baseline = self._transcode_images(fields)
                fields = {**fields, **baseline}
                records.append(self._writer.prepare(record.key, fields))
                nbytes += sum(len(fields[name]) for name in self._source.schema.blobs)
                transcoded, kept = transcoded + len(baseline), kept + len(self._images) - len(baseline)
            except (PackError, DecodeError, StoreError) as error:
                records.append(Skipped(key, error.message))
        return _PreparedRecords(records, nbytes, transcoded, kept)

    def _check_images(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Check the images of a record; returns its fields, with the size of the image where it is stored."""
        sizes = {name: check_image(bytes(fields[name]), self._check) for name in self._images}
        if not self._adds_size:
            return fields
        width, height = sizes["image"]
        return {**fields, "width": width, "height": height}

    def _transcode_images(self, fields: Mapping[str, Any]) -> dict[str, bytes]:
        """The images of a record that are rewritten, by field."""
        if not self._transcode:
            return {}
        rewritten = {name: to_baseline(bytes(fields[name])) for name in self._images}
        return {name: image for name, image in rewritten.items() if image is not None}


def find_clashes(source: Store) -> dict[int, str]:
    """Records whose names some file systems do not distinguish from an earlier name: the reason, by index."""
    return {
        position: f"its name equals that of {other!r}, except for case or Unicode form"
        for position, other in find_name_clashes(source.keys()).items()
    }


def refuse_unpackable(source: Store, clashing: Mapping[int, str]) -> None:
    """Raise PackError if the listing of the source, without its images, shows that records cannot be packed."""
    keys = source.keys()
    if known := [*(Skipped(keys[position], reason) for position, reason in clashing.items()), *source.unreadable]:
        raise _make_refusal(source, known, "nothing was written, and no image was read yet")


def refuse_left_out(source: Store, skipped: Sequence[Skipped]) -> None:
    """Raise PackError if an existing pack lacks images of the source, as ``skipped`` says."""
    if not skipped:
        return
    names = {*source.keys(), *(entry.key for entry in source.unreadable)}  # other entries are no images
    if missing := [entry for entry in skipped if entry.key in names]:
        raise PackError(
            f'an earlier run with on_error="skip" left out {counted(len(missing), "file")} of the source; pack with '
            'on_error="skip" (--on-error skip) as before, or repair or remove the files and pack with overwrite=True '
            f"(--overwrite):\n{list_skipped(missing)}",
            store=source.url,
        )


def _make_refusal(source: Store, refused: Sequence[Skipped], outcome: str) -> PackError:
    them = "it" if len(refused) == 1 else "them"
    return PackError(
        f"{len(refused):,} of the source's files cannot be packed; {outcome}. Repair or remove {them}, or pack with "
        f'on_error="skip" (--on-error skip), which leaves {them} out:\n{list_skipped(refused)}',
        store=source.url,
    )


def list_skipped(skipped: Sequence[Skipped], limit: int = _MAX_LISTED) -> str:
    """One line for each of the first ``limit`` entries."""
    lines = [f"  {escape_unprintable(key)}: {escape_unprintable(reason)}" for key, reason in skipped[:limit]]
    if len(skipped) > limit:
        lines.append(f"  ... and {len(skipped) - limit} more")
    return "\n".join(lines)


def _run_in_order(
    pool: ThreadPoolExecutor,
    prepare: Callable[[Sequence[int]], _PreparedRecords[T_prepared]],
    indices: range,
    least: int,
) -> Iterator[_PreparedRecords[T_prepared]]:
    """Results of tasks in order; at least ``least`` run ahead, and as many as fit into bounded memory."""
    pending: deque[Future[_PreparedRecords[T_prepared]]] = deque()
    done = nbytes = 0
    for first in range(indices.start, indices.stop, _TASK_RECORDS):
        pending.append(pool.submit(prepare, range(first, min(first + _TASK_RECORDS, indices.stop))))
        allowed = max(least, min(_MAX_PENDING, _PENDING_NBYTES * done // max(nbytes, 1)))
        while len(pending) > allowed:
            task = pending.popleft().result()
            done, nbytes = done + 1, nbytes + task.nbytes
            yield task
    while pending:
        yield pending.popleft().result()


def add_size_fields(schema: Schema) -> Schema:
    """The fields of the source, with ``width`` and ``height`` if there is an ``image`` and no such fields."""
    if "image" in schema and schema["image"].kind == "image" and "width" not in schema and "height" not in schema:
        return Schema({**schema.fields, "width": Field("int"), "height": Field("int")})
    return schema
