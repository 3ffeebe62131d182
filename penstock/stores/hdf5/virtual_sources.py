"""The files that a virtual dataset is a view of: HDF5 reads its fill value, without an error, where one is missing.

::

    all.h5  images (10, ...)  ──> part0.h5 images (5, ...), part1.h5 images (5, ...)    in the folder of all.h5

Called by the survey of a file. A source in another folder is not read at all.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    import h5py

__all__ = ["VirtualSources"]

_MAX_OPENED: Final = 1000
"""Sources that are opened; of others it is known that they are there."""
_BLOCK: Final = re.compile(r"(?<!%)(?:%%)*%b")


@dataclass(slots=True)
class VirtualSources:
    """The sources of virtual datasets in one folder.

    ``open_file``: opens a file of the folder. ``errors``: what reading it raises. ``files``: those that were found.
    """

    folder: Path
    open_file: Callable[[Path], h5py.File]
    errors: tuple[type[Exception], ...]
    files: dict[Path, None] = field(default_factory=dict)
    _known: dict[tuple[str, str], str] = field(default_factory=dict)  # why a source cannot be read

    def find_missing(self, dataset: h5py.Dataset) -> str:
        """The first source of a dataset that is missing or cannot be read, and why; empty if all are there."""
        sources = dict.fromkeys((source.file_name, source.dset_name) for source in dataset.virtual_sources())
        for pattern, inner in sources:
            for name in self._expand(pattern):
                key = (dataset.file.filename if name == "." else name, inner)
                if key not in self._known:
                    self._known[key] = ""  # of views in a circle
                    self._known[key] = self._check(dataset, name, inner)
                if reason := self._known[key]:
                    return f"{inner!r} of {'this file' if name == '.' else name}, {reason}"
        return ""

    def _check(self, dataset: h5py.Dataset, name: str, inner: str) -> str:
        path = self.folder / name
        if name != "." and not path.is_file():
            return "which is missing"
        if name != ".":
            self.files[path] = None
        if len(self._known) > _MAX_OPENED or "%" in inner:
            return ""
        try:
            with (
                contextlib.nullcontext(dataset.file)
                if name == "."
                else contextlib.closing(self.open_file(path)) as file
            ):
                source = file[inner]
                missing = self.find_missing(source) if source.is_virtual else ""
        except PenstockError as error:
            return f"which cannot be read: {error.message}"
        except self.errors as error:
            return f"which cannot be read: {error}"
        return missing and f"a view of {missing}"

    def _expand(self, pattern: str) -> Iterator[str]:
        """The names of a pattern in which ``%b`` is a number: those up to the last one that is there."""
        block = _BLOCK.search(pattern)
        if block is None:
            yield pattern.replace("%%", "%")
            return
        before, after = (part.replace("%%", "%") for part in (pattern[: block.end() - 2], pattern[block.end() :]))
        middle = re.compile(re.escape(before) + "([0-9]{1,6})" + re.escape(after))
        found = [match for path in self.folder.iterdir() if (match := middle.fullmatch(path.name))]
        for number in range(max((int(match[1]) for match in found), default=0) + 1):
            yield f"{before}{number}{after}"
