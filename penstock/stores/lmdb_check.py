"""Verify a pack without mapping it: every page against its seal, every record against its checksums.

::

    records   leaf by leaf, in order ──> pages sealed?  checksums?  number?  label as in the column?
    columns, keys, meta, main, free  ──> pages sealed?  consistent with the records?
    all pages not met on the way     ──> sealed?   (free pages, slack)

Each page is read once. A flipped bit is named by the record whose bytes it hit, or by its page where it hit the
structure. Memory is bounded: one bit per page, one column per small field.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from penstock.errors import IncompleteStoreError, StoreError, StoreFormatError
from penstock.plurals import counted
from penstock.stores.base import Problem
from penstock.stores.lmdb_format import COLUMNS, KEYS, RECORDS, Layout, PackMeta, parse_column, record_key
from penstock.stores.lmdb_map import FILE, LOCK, PackMap, missing_data, read_meta, usable_seals
from penstock.stores.lmdb_pages import Extent, Node, PageFile, Tree
from penstock.stores.lmdb_seals import SEALS, Seals, page_hashes
from penstock.stores.regular import open_regular

__all__ = ["check"]

_MASK: Final = 0xFFFFFFFFFFFFFFFF
_SWEEP_PAGES: Final = 2048
_REPORT_EVERY: Final = 64


def check(path: str, progress: Callable[[int, int], None] | None = None) -> Iterator[Problem]:
    """Everything wrong with the pack at ``path``; see :meth:`penstock.stores.base.Store.check`."""
    folder = Path(path).absolute()
    url = f"lmdb://{folder}"
    if not (folder / FILE).exists():
        error = missing_data(folder, url)
        if not isinstance(error, IncompleteStoreError):
            raise error
        yield Problem(error.message)
        return
    refused = _refusal(folder, url)
    if refused is not None:
        yield Problem(refused.message)
    if isinstance(refused, IncompleteStoreError):
        return
    seals, problem = _open_seals(folder)
    if problem is not None:
        yield problem
    structure_holds = True
    try:
        with PageFile(folder / FILE, url) as pages:
            for problem in _Check(pages, seals, url).run(progress):
                structure_holds = structure_holds and problem.index is not None
                yield problem
        if structure_holds:
            PackMap.of(folder, url)  # what readers refuse is a problem, whatever else holds
    except StoreError as error:  # it cannot even be opened: at least say which pages changed
        found = list(_sweep_raw(folder / FILE, seals)) if seals is not None else []
        yield from found
        if not found and refused is None:
            yield Problem(error.message)


def _refusal(folder: Path, url: str) -> StoreError | None:
    """What opening refuses the whole file for: it was cut, or never finished. Damage inside is found page by page."""
    try:
        seals = usable_seals(folder, url)
    except StoreFormatError as error:
        return error
    try:
        with PageFile(folder / FILE, url) as pages, suppress(StoreFormatError):
            read_meta(pages, url)
    except IncompleteStoreError as error:
        return error
    except StoreFormatError as error:
        if (folder / LOCK).exists():
            return missing_data(folder, url)
        return error if seals is None else None  # with the size that was sealed, it was not cut
    except ValueError:
        return None
    return None


def _open_seals(folder: Path) -> tuple[Seals | None, Problem | None]:
    try:
        seals = Seals(folder / SEALS)
        if seals.broken():
            raise ValueError("its own checksum does not hold")  # noqa: TRY301  # one end
    except FileNotFoundError:
        return None, Problem(f"{SEALS} is missing: damage outside the records cannot be seen")
    except ValueError as error:
        return None, Problem(f"{SEALS} is damaged: {error}; damage outside the records cannot be seen")
    return seals, None


class _Check:
    """One run over a file that can be opened."""

    def __init__(self, pages: PageFile, seals: Seals | None, url: str) -> None:
        self._pages, self._seals, self._url = pages, seals, url
        self._met = np.zeros(pages.pages, bool)
        self._nameless: list[Problem] = []
        self._key_sum = 0

    def run(self, progress: Callable[[int, int], None] | None) -> Iterator[Problem]:
        """All problems."""
        if self._seals is not None and self._seals.count != self._pages.pages:
            yield Problem(f"the file has {self._pages.pages} pages, {self._seals.count} were sealed")
            self._seals = None
        structure: list[int] = []
        try:
            for _ in self._pages.leaves(self._pages.meta.main, structure):
                yield from self._structure(structure)
            trees = self._pages.trees()
            meta = read_meta(self._pages, self._url)
        except ValueError as error:
            yield from self._structure(structure)
            yield Problem(error.message if isinstance(error, StoreError) else str(error))
        else:
            yield from self._records(trees, meta, progress)
            yield from self._keys(trees, meta)
            yield from self._nameless
        yield from self._sweep()

    def _records(
        self, trees: dict[bytes, Tree], meta: PackMeta, progress: Callable[[int, int], None] | None
    ) -> Iterator[Problem]:
        columns: dict[str, NDArray[Any]] = {}
        yield from self._load_columns(trees, meta, columns)
        layout = Layout(meta.schema)
        heads = b""
        index = 0
        structure: list[int] = []
        try:
            for _, nodes in self._pages.leaves(trees[RECORDS], structure):
                yield from self._structure(structure)
                for node in nodes:
                    if node.key != record_key(index):
                        yield Problem(f"its number in the file is {node.key.hex()}", index=index)
                    content = yield from self._record(node, index, layout, columns)
                    heads = xxhash.xxh3_128_digest(heads + content[: layout.head_nbytes])
                    index += 1
                    if progress is not None and index % _REPORT_EVERY == 0:
                        progress(index, meta.count)
        except (ValueError, KeyError) as error:
            yield from self._structure(structure)
            yield Problem(f"the records cannot be walked beyond number {index}: {error}")
            return
        if index != meta.count:
            yield Problem(f"it holds {counted(index, 'record')} and should have {meta.count}")
        elif heads.hex() != meta.content:
            yield Problem("the records are not those that were packed: the hash over all of them differs")
        if progress is not None:
            progress(index, meta.count)

    def _record(
        self, node: Node, index: int, layout: Layout, columns: dict[str, NDArray[Any]]
    ) -> Generator[Problem, None, bytes]:
        """Problems of one record; returns its bytes."""
        content, broken = self._value(node.extent)
        try:
            key, fields = layout.decode(memoryview(content), index)
        except ValueError as error:
            self._nameless.append(Problem(str(error), index=index, page=broken[0] if broken else node.extent.page))
            return content
        self._key_sum = self._key_sum + _pair_hash(key.encode(), index) & _MASK
        for name, column in columns.items():
            if index >= len(column) or not _same(column[index], fields[name]):
                yield Problem(f"its {name} is {fields[name]!r}, and another in the column", key=key, index=index)
        for page in broken:  # the record is whole: what changed is the page around it
            yield Problem("this page is not as it was sealed, beside the record's bytes", key, index, page)
        return content

    def _load_columns(
        self, trees: dict[bytes, Tree], meta: PackMeta, columns: dict[str, NDArray[Any]]
    ) -> Iterator[Problem]:
        stored: dict[str, Extent] = {}
        try:
            structure: list[int] = []
            for _, nodes in self._pages.leaves(trees[COLUMNS], structure):
                yield from self._structure(structure)
                stored.update({node.key.decode(): node.extent for node in nodes})
        except (ValueError, KeyError) as error:
            yield Problem(f"the database of columns is damaged: {error}")
        for name, hashed in (meta.columns or {}).items():
            if name not in stored:
                yield Problem(f"the column of {name!r} is missing")
                continue
            page = stored[name].page
            try:
                content, broken = self._value(stored[name])
                page = broken[0] if broken else page
                if xxhash.xxh3_64_hexdigest(content) != hashed:
                    raise ValueError("its checksum does not hold")  # noqa: TRY301  # one end
                columns[name] = parse_column(content, meta.count, meta.schema[name])
            except ValueError as error:
                yield Problem(f"the column of {name!r} is damaged: {error}", page=page)

    def _keys(self, trees: dict[bytes, Tree], meta: PackMeta) -> Iterator[Problem]:
        """Check the database of keys, and find with it the names of records that cannot tell theirs."""
        count, total, last = 0, 0, b""
        wanted = {problem.index: at for at, problem in enumerate(self._nameless)}
        structure: list[int] = []
        try:
            for page, nodes in self._pages.leaves(trees[KEYS], structure):
                yield from self._structure(structure)
                for node in nodes:
                    index = self._pages.number(node)
                    if count and node.key <= last:
                        yield Problem("the database of keys is out of order", key=repr(node.key), page=page)
                    last = node.key
                    count += 1
                    total = total + _pair_hash(node.key, index) & _MASK
                    if index in wanted:
                        known = self._nameless[wanted[index]]
                        key = node.key.decode(errors="backslashreplace")
                        self._nameless[wanted[index]] = Problem(known.reason, key, known.index, known.page)
        except (ValueError, KeyError) as error:
            yield from self._structure(structure)
            yield Problem(f"the database of keys is damaged: {error}")
            return
        if count != meta.count:
            yield Problem(f"the database of keys has {counted(count, 'entry')} for {counted(meta.count, 'record')}")
        elif total != self._key_sum and not self._nameless:
            yield Problem("the database of keys gives other numbers to keys than the records do")

    def _structure(self, numbers: list[int]) -> Iterator[Problem]:
        """Check branch and leaf pages just met, and forget them."""
        for number in numbers:
            if not 0 <= number < len(self._met) or self._met[number]:
                continue
            self._met[number] = True
            if self._broken(number, self._pages.read(number)):
                yield Problem("structure page: not as it was sealed", page=number)
        numbers.clear()

    def _value(self, extent: Extent) -> tuple[bytes, list[int]]:
        """A value's bytes, and which of its own pages are not as they were sealed."""
        if extent.inline:  # the leaf was checked
            return self._pages.value(extent), []
        if self._met[extent.page : extent.page + extent.pages].any():
            raise ValueError(f"page {extent.page}: it, or one after it, is used twice")
        content = self._pages.read(extent.page, extent.pages)
        self._met[extent.page : extent.page + extent.pages] = True
        start = extent.offset - extent.page * self._pages.page_nbytes
        return content[start : start + extent.nbytes], self._broken(extent.page, content)

    def _broken(self, first: int, content: bytes) -> list[int]:
        if self._seals is None:
            return []
        hashes = page_hashes(content, self._pages.page_nbytes)
        return (first + np.flatnonzero(hashes != self._seals.load(first, len(hashes)))).tolist()

    def _sweep(self) -> Iterator[Problem]:
        """Check the pages that nothing led to."""
        for first in range(0, self._pages.pages, _SWEEP_PAGES):
            left = np.flatnonzero(~self._met[first : first + _SWEEP_PAGES])
            for number in (first + left).tolist():
                if self._broken(number, self._pages.read(number)):
                    is_meta = number < 2
                    what = "structure page" if is_meta else "page not in use, or behind a damaged one"
                    yield Problem(f"{what}: not as it was sealed", page=number)


def _same(stored: Any, field: float) -> bool:
    """Whether a column has the value of a field; two NaN are the same."""
    return bool(stored == field or (stored != stored and field != field))  # noqa: PLR0124  # NaN alone


def _sweep_raw(path: Path, seals: Seals) -> Iterator[Problem]:
    try:
        opened = open_regular(path)
    except OSError:
        return  # the caller says so
    with os.fdopen(opened, "rb") as file:
        for first in range(0, seals.count, _SWEEP_PAGES):
            hashes = page_hashes(file.read(_SWEEP_PAGES * seals.page_nbytes), seals.page_nbytes)
            sealed = seals.load(first, len(hashes))
            for number in (first + np.flatnonzero(hashes[: len(sealed)] != sealed)).tolist():
                yield Problem("structure page: not as it was sealed", page=number)


def _pair_hash(key: bytes, index: int) -> int:
    return xxhash.xxh3_64_intdigest(key, index)
