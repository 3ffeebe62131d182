"""Verifies a pack without mapping it: every page by its hash, every record by its checksums.

::

    records   leaf by leaf, in order ──> page hashes?  checksums?  number?  label as in the column?
    columns, keys, meta, main, free  ──> page hashes?  consistent with the records?
    all other pages                  ──> page hashes?   (free pages)

Each page is read once. A flipped bit is reported with the record that contains it, or with its page if it is in the
structure. Memory is bounded: one byte for each page, one column for each small field.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import xxhash

from penstock import _native
from penstock.errors import IncompleteStoreError, StoreError, StoreFormatError
from penstock.sample import Array
from penstock.stores.common.lmdb.pages import FILE, HASHES, LOCK, BTree, Node, PageFile
from penstock.stores.common.mirrors import find_mirror
from penstock.stores.common.regular_file import open_regular
from penstock.stores.fields.columns import get_missing
from penstock.stores.lmdb_pack.blocks import BlockLayout, ParsedBlock, find_block_problems, find_layout
from penstock.stores.lmdb_pack.format import COLUMNS, KEYS, RECORDS, RecordCodec, decode_column, make_record_key
from penstock.stores.lmdb_pack.mapping import PackMap, load_page_hashes, make_missing_error, read_meta
from penstock.stores.lmdb_pack.meta import PackMeta
from penstock.stores.lmdb_pack.page_hashes import PageHashFile
from penstock.stores.problems import Problem
from penstock.wording import counted

__all__ = ["check"]

_MASK: Final = 0xFFFFFFFFFFFFFFFF
_READ_PAGES: Final = 2048
_REPORT_EVERY: Final = 64


def check(folder: Path, url: str, progress: Callable[[int, int], None] | None = None) -> Iterator[Problem]:
    """Everything that is wrong with the pack in ``folder``; see :meth:`penstock.stores.base.Store.check`."""
    if not (folder / FILE).exists():
        error = make_missing_error(folder, url)
        if not isinstance(error, IncompleteStoreError):
            raise error
        yield Problem(error.message)
        return
    refused = _find_refusal(folder, url)
    if refused is not None:
        yield Problem(refused.message)
    if isinstance(refused, IncompleteStoreError):
        return
    hashes, problem = _open_page_hashes(folder)
    if problem is not None:
        yield problem
    try:
        with _ReportingPages(folder / FILE, url, hashes) as pages:
            _PackCheck(pages, url).run(progress)
        yield from pages.problems
        if all(found.index is not None for found in pages.problems):
            PackMap.open(folder, url)  # what readers refuse is a problem
    except StoreError as error:  # it cannot be opened: report which pages changed
        found = list(_check_raw_pages(folder / FILE, hashes)) if hashes is not None else []
        yield from found
        if not found and refused is None:
            yield Problem(error.message)


def _find_refusal(folder: Path, url: str) -> StoreError | None:
    """Why opening refuses the whole file: it is truncated or unfinished. Other damage is found page by page."""
    try:
        hashes = load_page_hashes(folder, url)
    except StoreFormatError as error:
        return error
    try:
        with PageFile(folder / FILE, url) as pages, contextlib.suppress(StoreFormatError):
            read_meta(pages, url)
    except IncompleteStoreError as error:
        return error
    except StoreFormatError as error:
        if (folder / LOCK).exists():
            return make_missing_error(folder, url)
        return error if hashes is None else None  # a file with hashes for all of its pages is not truncated
    except ValueError:
        return None
    return None


def _open_page_hashes(folder: Path) -> tuple[PageHashFile | None, Problem | None]:
    try:
        hashes = PageHashFile(folder / HASHES)
        if hashes.is_damaged():
            raise ValueError("its own checksum does not match")  # noqa: TRY301  # one handler
    except FileNotFoundError:
        return None, Problem(f"{HASHES} is missing: damage outside the records cannot be detected")
    except ValueError as error:
        return None, Problem(f"{HASHES} is damaged: {error}; damage outside the records cannot be detected")
    return hashes, None


class _ReportingPages(PageFile):
    """Pages that are visited once: those of a tree that changed are reported, and read nevertheless."""

    _read: Callable[[int, int], bytes] | None = None

    def __init__(self, path: Path, url: str, stored: PageHashFile | None) -> None:
        super().__init__(path, url)
        self.visited = np.zeros(self.pages, bool)
        self.problems: list[Problem] = []
        self.stored = stored
        self._read = None if self.mirror is None else self.mirror.make_reader()
        self.mirror = None  # whose pages are those that are right
        if stored is not None and stored.count != self.pages:
            self.report(f"the file must have {stored.count} pages, as {HASHES} says, got {self.pages}")
            self.stored = None

    def report(self, reason: str, key: str | None = None, index: int | None = None, page: int | None = None) -> None:
        """Note a problem."""
        self.problems.append(Problem(reason, key, index, page))

    def _read_bytes(self, offset: int, nbytes: int) -> bytes:
        return super()._read_bytes(offset, nbytes) if self._read is None else self._read(offset, nbytes)

    def read_node_page(self, number: int) -> bytes:
        """Return a branch or leaf page."""
        page = super().read_node_page(number)
        if not self.visited[number]:
            self.visited[number] = True
            if self.find_changed(number, page):
                self.report("structure page: its checksum does not match", page=number)
        return page

    def read_value(self, node: Node) -> tuple[bytes, list[int]]:
        """Return the bytes of a value, and which of its overflow pages do not match their hashes."""
        if node.inline:  # its leaf page is checked already
            return self.value(node), []
        if self.visited[node.page : node.page + node.pages].any():
            raise ValueError(f"page {node.page}: this page, or one after it, is used twice")
        content = self.read(node.page, node.pages)
        self.visited[node.page : node.page + node.pages] = True
        start = node.offset - node.page * self.page_nbytes
        return content[start : start + node.nbytes], self.find_changed(node.page, content)

    def find_changed(self, first: int, content: bytes) -> list[int]:
        """Return which of some pages do not match their hashes."""
        if self.stored is None:
            return []
        found = _native.hash_pages(content, self.page_nbytes)
        return (first + np.flatnonzero(found != self.stored.load(first, len(found)))).tolist()


class _PackCheck:
    """One verification of a file that can be opened."""

    def __init__(self, pages: _ReportingPages, url: str) -> None:
        self._pages, self._url, self._report = pages, url, pages.report
        self._nameless: dict[int, Problem] = {}
        self._key_sum = 0

    def run(self, progress: Callable[[int, int], None] | None) -> None:
        """Report all problems."""
        try:
            trees = self._pages.trees()
            meta = read_meta(self._pages, self._url)
        except ValueError as error:
            self._report(error.message if isinstance(error, StoreError) else str(error))
        else:
            self._check_records(trees, meta, progress)
            if not meta.block_records:
                self._check_keys(trees, meta)
            self._pages.problems += self._nameless.values()
        self._check_other_pages()

    def _check_records(
        self, trees: dict[bytes, BTree], meta: PackMeta, progress: Callable[[int, int], None] | None
    ) -> None:
        columns = self._load_columns(trees, meta)
        codec = RecordCodec(meta.schema, allows_none=meta.version > 1)
        layout = find_layout(meta, self._url)
        per_entry = meta.block_records or 1
        heads, entry = b"", 0
        try:
            for _, node in self._pages.nodes(trees[RECORDS]):
                index = entry * per_entry
                if node.key != make_record_key(entry):
                    self._report(f"its number in the file must be {entry}, got {node.key.hex()}", index=index)
                if layout is None:
                    head = self._check_record(node, index, codec, columns)[: codec.head_nbytes]
                else:
                    head = self._check_block(node, index, layout, meta, columns)
                heads = xxhash.xxh3_128_digest(heads + head)
                entry += 1
                if progress is not None and entry % _REPORT_EVERY == 0:
                    progress(min(entry * per_entry, meta.count), meta.count)
        except (ValueError, KeyError) as error:
            self._report(f"the records from number {entry * per_entry} on cannot be read: {error}")
            return
        if entry != meta.entries:
            what = "block" if layout is not None else "record"
            self._report(f"it must have {counted(meta.entries, what)}, got {entry}")
        elif heads.hex() != meta.content:
            self._report("the records are not those that were packed: the hash over all records does not match")
        if progress is not None:
            progress(meta.count, meta.count)

    def _check_block(
        self, node: Node, first: int, layout: BlockLayout, meta: PackMeta, columns: dict[str, Array]
    ) -> bytes:
        """Report the problems of one block; return the stored hashes of its records."""
        content, changed = self._pages.read_value(node)
        page = changed[0] if changed else node.page
        count = max(0, min(meta.block_records, meta.count - first))
        try:
            block = ParsedBlock.parse(layout, memoryview(content), first, count)
        except ValueError as error:
            self._report(str(error), index=first, page=page)
            return b""
        problems = [replace(each, page=page) for each in find_block_problems(block, columns)]
        self._pages.problems += problems
        if not block.is_intact():
            if not problems:
                self._report("the checksum of its block does not match, outside its records", None, first, page)
        else:
            for other in changed:
                self._report("the checksum of its page does not match, in bytes outside the block", None, first, other)
        return bytes(block.stored_hashes)

    def _check_record(self, node: Node, index: int, codec: RecordCodec, columns: dict[str, Array]) -> bytes:
        """Report the problems of one record; return its bytes."""
        content, changed = self._pages.read_value(node)
        try:
            key, fields = codec.decode(memoryview(content), index)
        except ValueError as error:
            self._nameless[index] = Problem(str(error), index=index, page=changed[0] if changed else node.page)
            return content
        self._key_sum = self._key_sum + _hash_pair(key.encode(), index) & _MASK
        for name, column in columns.items():
            if index >= len(column) or not _is_same(column[index], fields[name]):
                self._report(f"its {name} is {fields[name]!r}, which differs from the column", key, index)
        for page in changed:  # the record is intact: other bytes of the page changed
            self._report("the checksum of its page does not match, in bytes outside the record", key, index, page)
        return content

    def _load_columns(self, trees: dict[bytes, BTree], meta: PackMeta) -> dict[str, Array]:
        """Return the columns that are intact; the others are reported."""
        stored: dict[str, Node] = {}
        columns: dict[str, Array] = {}
        try:
            stored.update({node.key.decode(): node for _, node in self._pages.nodes(trees[COLUMNS])})
        except (ValueError, KeyError) as error:
            self._report(f"the database of columns is damaged: {error}")
        for name, hashed in (meta.columns or {}).items():
            if name not in stored:
                self._report(f"the column of {name!r} is missing")
                continue
            page = stored[name].page
            try:
                content, changed = self._pages.read_value(stored[name])
                page = changed[0] if changed else page
                if xxhash.xxh3_64_hexdigest(content) != hashed:
                    raise ValueError("its checksum does not match")  # noqa: TRY301  # one handler
                columns[name] = decode_column(content, meta.count, meta.schema[name])
            except ValueError as error:
                self._report(f"the column of {name!r} is damaged: {error}", page=page)
        return columns

    def _check_keys(self, trees: dict[bytes, BTree], meta: PackMeta) -> None:
        """Check the database of keys, and find in it the keys of records that cannot be decoded."""
        count, total, last = 0, 0, b""
        try:
            for page, node in self._pages.nodes(trees[KEYS]):
                if count and node.key <= last:
                    self._report("the database of keys is out of order", key=repr(node.key), page=page)
                last = node.key
                for index in self._pages.numbers(node):
                    count += 1
                    total = total + _hash_pair(node.key, index) & _MASK
                    if index in self._nameless:
                        key = node.key.decode(errors="backslashreplace")
                        self._nameless[index] = replace(self._nameless[index], key=key)
        except (ValueError, KeyError) as error:
            self._report(f"the database of keys is damaged: {error}")
            return
        if count != meta.count:
            self._report(f"the database of keys must have {counted(meta.count, 'entry')}, got {count}")
        elif total != self._key_sum and not self._nameless:
            self._report("the database of keys and the records give different numbers to keys")

    def _check_other_pages(self) -> None:
        """Check the pages that no tree refers to."""
        for number in np.flatnonzero(~self._pages.visited).tolist():
            if self._pages.find_changed(number, self._pages.read(number)):
                what = "structure page" if number < 2 else "page that is unused, or below a damaged page"
                self._report(f"{what}: its checksum does not match", page=number)


def _is_same(stored: np.generic, field: float | None) -> bool:
    """Return whether a value of a column is that of its record.

    Two NaN are equal, and so is what stands for a missing value.
    """
    if field is None:
        field = get_missing(stored.dtype)
    return bool(stored == field or (stored != stored and field != field))  # noqa: PLR0124  # NaN alone


def _check_raw_pages(path: Path, hashes: PageHashFile) -> Iterator[Problem]:
    with contextlib.ExitStack() as stack:
        if (mirror := find_mirror(path)) is not None:
            read = mirror.make_reader()
        else:
            try:
                file = stack.enter_context(os.fdopen(open_regular(path), "rb"))
            except OSError:
                return  # the caller reports it
            read = lambda at, nbytes: os.pread(file.fileno(), nbytes, at)  # noqa: E731  # as the other one: a function
        step = _READ_PAGES * hashes.page_nbytes
        for first in range(0, hashes.count, _READ_PAGES):
            found = _native.hash_pages(read(first * hashes.page_nbytes, step), hashes.page_nbytes)
            stored = hashes.load(first, len(found))
            for number in (first + np.flatnonzero(found[: len(stored)] != stored)).tolist():
                yield Problem("structure page: its checksum does not match", page=number)


def _hash_pair(key: bytes, index: int) -> int:
    return xxhash.xxh3_64_intdigest(key, index)
