"""Some records of a source, by their keys: ``pack(keys=...)``. The order is that of the source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import xxhash

from penstock.errors import ArgumentError
from penstock.pack.sources.base import Source, SourceItem
from penstock.sample import Index, Value
from penstock.stores.common.key_files import KeysLike, read_keys, refuse_unknown_keys

__all__ = ["SelectedSource"]


class SelectedSource(Source):
    """The records of a source that have some keys.

    Parameters
    ----------
    source : Source
        Its keys are known before it is read; it is closed with this one.
    keys : str, path or sequence of str
        The keys, or a file of them, as for :func:`penstock.find_keys`; each is used once.

    Raises
    ------
    ArgumentError
        If the keys of the source are known only when it is read, or there are none to select.
    RecordKeyError
        If the source lacks a key.
    """

    def __init__(self, source: Source, keys: KeysLike) -> None:
        if source.keys is None and not (source.numbers_records and source.total is not None):
            raise ArgumentError(
                f"keys needs a source whose keys are known before it is read, such as a folder, a store or a table; "
                f"{source.url} is none"
            )
        self._source = source
        self._wanted = frozenset(read_keys(keys))
        if not self._wanted:
            raise ArgumentError("keys must have at least one key")
        self.url, self.schema, self.location = source.url, source.schema, source.location
        self.is_exact, self.numbers_records = source.is_exact, source.numbers_records
        self.problems = tuple(each for each in source.problems if each.key in self._wanted)
        self.unreadable = tuple(each for each in source.unreadable if each.key in self._wanted)
        everything = map(str, range(source.total or 0)) if source.keys is None else source.keys
        self.keys = [key for key in everything if key in self._wanted]
        self.total = len(self.keys)
        known = {*self.keys, *(each.key for each in self.problems)}
        refuse_unknown_keys(sorted(self._wanted - known), self.url)

    def items(self, start: int) -> Iterator[SourceItem]:
        """The items with these keys, in the order of the source."""
        found = (item for item in self._source.items(0) if item.key in self._wanted)
        return itertools.islice(found, start, None)

    def load(self, token: Index) -> Mapping[str, Value]:
        """See :meth:`Source.load`."""
        return self._source.load(token)

    def load_records(self, tokens: Sequence[Value]) -> Sequence[Mapping[str, Value]] | None:
        """See :meth:`Source.load_records`."""
        return self._source.load_records(tokens)

    def load_batch(self, tokens: Sequence[Value]) -> Mapping[str, Value] | None:
        """See :meth:`Source.load_batch`."""
        return self._source.load_batch(tokens)

    def digest(self) -> str | None:
        """That of the source, and of the keys."""
        own = self._source.digest()
        if own is None:
            return None
        text = "\0".join(sorted(self._wanted))
        return f"{own} keys {xxhash.xxh3_128_hexdigest(text.encode(errors='surrogateescape'))}"

    def close(self) -> None:
        """Close the source."""
        self._source.close()
