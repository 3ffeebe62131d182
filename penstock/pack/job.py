"""One run of packing: all threads read, check and hash; one writes, in the source's order.

::

    source ──> [8 records] ──> thread: read, check, encode, hash ──┐
           ──> [8 records] ──> thread: ...                         ├──in order──> writer ──> commits
           ──> [8 records] ──> ...                                 ┘

Called by :func:`penstock.pack`, which opens source and writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import DecodeError, PackError, StoreError
from penstock.escapes import printable
from penstock.pack.check import check_image
from penstock.pack.transcoding import to_baseline
from penstock.plurals import counted
from penstock.sample import Field, Schema
from penstock.stores.base import Skipped, Store, Writer
from penstock.stores.names import clashes

__all__ = ["Job", "PackProgress", "find_clashing", "list_bounded", "packed_schema", "refuse_left_out", "refuse_listed"]

_CHUNK: Final = 8
_WAITING_NBYTES: Final = 64 << 20
_MAX_WAITING: Final = 256
_LISTED: Final = 100


@dataclass(frozen=True, slots=True)
class PackProgress:
    """How far a pack is: records of the source dealt with and in all, bytes of images, records left out."""

    done: int
    total: int
    nbytes: int
    skipped: int


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Records as they come from a thread, in order."""

    records: list[Any]
    nbytes: int
    transcoded: int
    kept: int


class Job:
    """One run of packing: what the threads do, and what is done with it in order."""

    def __init__(
        self,
        source: Store,
        writer: Writer,
        clashing: Mapping[int, str],
        *,
        on_error: str,
        check: str,
        transcode: str,
        replaces: bool,
    ) -> None:
        self._outcome = "the pack that was there was removed" if replaces else "nothing was written"
        self._source, self._writer, self._clashing = source, writer, clashing
        self._raise, self._check, self._transcode = on_error == "raise", check, transcode == "baseline"
        self.transcoded = self.kept = 0
        self._images = tuple(name for name in source.schema.blobs if source.schema[name].kind in {"image", "mask"})
        self._sized = "width" in packed_schema(source.schema) and "width" not in source.schema
        self._skipped = list(writer.committed.skipped)
        self._failed = self._stopped = False

    def run(self, pool: ThreadPoolExecutor, workers: int, report: Callable[[PackProgress], None]) -> None:
        """Deal with every record that no earlier run has."""
        total = len(self._source)
        done, nbytes = self._writer.committed.consumed, self._writer.committed.nbytes
        for chunk in _in_order(pool, self._prepare, range(done, total), 2 * workers):
            for entry in chunk.records:
                if isinstance(entry, Skipped):
                    self._skipped.append(entry)
                    self._failed = self._failed or self._raise
                    self._writer.skip(entry)
                elif not self._failed:
                    self._writer.append(entry)
            done += len(chunk.records)
            nbytes += chunk.nbytes
            self.transcoded += chunk.transcoded
            self.kept += chunk.kept
            report(PackProgress(done, total, nbytes, len(self._skipped)))

    def stop(self) -> None:
        """Let the threads end after the record they are at."""
        self._stopped = True

    def finish(self) -> tuple[Skipped, ...]:
        """Complete the pack, or refuse the source; returns what was left out."""
        if self._failed:
            self._writer.discard()
            raise _refusal(self._source, self._skipped, self._outcome)
        if len(self._skipped) >= len(self._source):
            self._writer.discard()
            raise PackError(
                f"nothing can be packed; {self._outcome}:\n{list_bounded(self._skipped)}", store=self._source.url
            )
        self._writer.finish(self._source.problems)
        return (*self._skipped, *self._source.problems)

    def _prepare(self, indices: Sequence[int]) -> _Chunk:
        """Read, check and encode some records; runs in the pool."""
        records: list[Any] = []
        nbytes = transcoded = kept = 0
        for index in indices:
            if self._stopped:
                break
            key = self._source.keys()[index]
            try:
                if index in self._clashing:
                    raise PackError(self._clashing[index])  # noqa: TRY301  # one end for every refusal
                record = self._source.read([index])[0]
                fields = self._checked(record.fields)
                baseline = self._baseline(fields)
                fields = {**fields, **baseline}
                records.append(self._writer.prepare(record.key, fields))
                nbytes += sum(len(fields[name]) for name in self._source.schema.blobs)
                transcoded, kept = transcoded + len(baseline), kept + len(self._images) - len(baseline)
            except (PackError, DecodeError, StoreError) as error:
                records.append(Skipped(key, error.message))
        return _Chunk(records, nbytes, transcoded, kept)

    def _checked(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        sizes = {name: check_image(bytes(fields[name]), self._check) for name in self._images}
        if not self._sized:
            return fields
        width, height = sizes["image"]
        return {**fields, "width": width, "height": height}

    def _baseline(self, fields: Mapping[str, Any]) -> dict[str, bytes]:
        """Those of a record's images that are rewritten."""
        if not self._transcode:
            return {}
        rewritten = {name: to_baseline(bytes(fields[name])) for name in self._images}
        return {name: image for name, image in rewritten.items() if image is not None}


def find_clashing(source: Store) -> dict[int, str]:
    """Records whose names some file systems take for an earlier one's; the reason of each, by position."""
    return {
        position: f"its name equals that of {other!r}, but for case or Unicode form"
        for position, other in clashes(source.keys()).items()
    }


def refuse_listed(source: Store, clashing: Mapping[int, str]) -> None:
    """Refuse what cannot be packed as the listing alone tells; PackError names all of it."""
    keys = source.keys()
    if known := [*(Skipped(keys[position], reason) for position, reason in clashing.items()), *source.unreadable]:
        raise _refusal(source, known, "nothing was written, and no image was read yet")


def refuse_left_out(source: Store, skipped: Sequence[Skipped]) -> None:
    """Refuse to go on with a pack, or to use it, that lacks images; PackError names them."""
    if not skipped:
        return
    names = {*source.keys(), *(entry.key for entry in source.unreadable)}  # the others are no images
    if lacking := [entry for entry in skipped if entry.key in names]:
        raise PackError(
            f'an earlier run with on_error="skip" left out {counted(len(lacking), "file")} of the source; pack with '
            'on_error="skip" (--on-error skip) as before, or repair or remove the files and pack with overwrite=True '
            f"(--overwrite):\n{list_bounded(lacking)}",
            store=source.url,
        )


def _refusal(source: Store, refused: Sequence[Skipped], outcome: str) -> PackError:
    them = "it" if len(refused) == 1 else "them"
    return PackError(
        f"{len(refused):,} of the source's files cannot be packed; {outcome}. Repair or remove {them}, or pack with "
        f'on_error="skip" (--on-error skip), which leaves {them} out:\n{list_bounded(refused)}',
        store=source.url,
    )


def list_bounded(skipped: Sequence[Skipped], limit: int = _LISTED) -> str:
    """One line per entry, the first ``limit`` of them."""
    lines = [f"  {printable(key)}: {printable(reason)}" for key, reason in skipped[:limit]]
    if len(skipped) > limit:
        lines.append(f"  ... and {len(skipped) - limit} more")
    return "\n".join(lines)


def _in_order(
    pool: ThreadPoolExecutor, work: Callable[[Sequence[int]], _Chunk], indices: range, least: int
) -> Iterator[_Chunk]:
    """Results of chunks of indices, in order; as many run ahead as fit in bounded memory, and ``least`` at least."""
    waiting: deque[Future[_Chunk]] = deque()
    done = nbytes = 0
    for first in range(indices.start, indices.stop, _CHUNK):
        waiting.append(pool.submit(work, range(first, min(first + _CHUNK, indices.stop))))
        allowed = max(least, min(_MAX_WAITING, _WAITING_NBYTES * done // max(nbytes, 1)))
        while len(waiting) > allowed:
            chunk = waiting.popleft().result()
            done, nbytes = done + 1, nbytes + chunk.nbytes
            yield chunk
    while waiting:
        yield waiting.popleft().result()


def packed_schema(schema: Schema) -> Schema:
    """The source's fields, and the image's size where there is one image and no such fields."""
    if "image" in schema and schema["image"].kind == "image" and "width" not in schema and "height" not in schema:
        return Schema({**schema.fields, "width": Field("int"), "height": Field("int")})
    return schema
