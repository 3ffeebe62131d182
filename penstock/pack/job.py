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
from penstock.pack.check import check_image
from penstock.pack.transcoding import to_baseline
from penstock.sample import Field, Schema
from penstock.stores.base import Skipped, Store, Writer
from penstock.stores.names import clashes

__all__ = ["Job", "PackProgress", "list_bounded", "packed_schema"]

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

    def __init__(self, source: Store, writer: Writer, on_error: str, check: str, transcode: str) -> None:
        self._source, self._writer = source, writer
        self._raise, self._check, self._transcode = on_error == "raise", check, transcode == "baseline"
        self.transcoded = self.kept = 0
        keys = source.keys()
        self._refused = {
            position: f"its name equals that of {other!r}, but for case or Unicode form"
            for position, other in clashes(keys).items()
        }
        self._images = tuple(name for name in source.schema.blobs if source.schema[name].kind in {"image", "mask"})
        self._sized = "width" in packed_schema(source.schema) and "width" not in source.schema
        self._skipped = list(writer.committed.skipped)
        self._failed = self._raise and bool(source.problems or self._refused or self._skipped)
        self._stopped = False

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
        problems = (*self._skipped, *self._source.problems)
        if self._failed:
            self._writer.discard()
            raise PackError(
                f"{len(problems)} of the source's files cannot be packed (nothing was written; mend or remove them, or "
                f'pack with on_error="skip", --on-error skip):\n{list_bounded(problems)}',
                store=self._source.url,
            )
        if len(problems) >= len(self._source) + len(self._source.problems):
            self._writer.discard()
            raise PackError(f"nothing can be packed:\n{list_bounded(problems)}", store=self._source.url)
        self._writer.finish(self._source.problems)
        return problems

    def _prepare(self, indices: Sequence[int]) -> _Chunk:
        """Read, check and encode some records; runs in the pool."""
        records: list[Any] = []
        nbytes = transcoded = kept = 0
        for index in indices:
            if self._stopped:
                break
            key = self._source.keys()[index]
            try:
                if index in self._refused:
                    raise PackError(self._refused[index])  # noqa: TRY301  # one end for every refusal
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


def list_bounded(skipped: Sequence[Skipped], limit: int = _LISTED) -> str:
    """One line per entry, the first ``limit`` of them."""
    lines = [f"  {key}: {reason}" for key, reason in skipped[:limit]]
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
