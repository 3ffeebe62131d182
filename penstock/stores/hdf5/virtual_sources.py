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
from penstock.registry import require
from penstock.stores.fields.record_names import quote_names

if TYPE_CHECKING:
    from collections.abc import Callable

    import h5py

__all__ = ["VirtualSources", "describe_external", "follow_links"]

_MAX_OPENED: Final = 1000
"""Sources that are opened; of others it is known that they are there."""
_MAX_LINKS: Final = 16  # as HDF5 itself follows
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
        """Return the first source of a dataset that is missing or cannot be read, and why; empty if all are there."""
        sources = dict.fromkeys((source.file_name, source.dset_name) for source in dataset.virtual_sources())
        for pattern, inner in sources:
            for name in self._expand(pattern):
                if reason := self._find_reason(dataset, name, inner):
                    return f"{inner!r} of {'this file' if name == '.' else name}, {reason}"
        return ""

    def _find_reason(self, dataset: h5py.Dataset, name: str, inner: str) -> str:
        """Why a dataset of a file cannot be read; empty if it can be."""
        key = (dataset.file.filename if name == "." else name, inner)
        if key not in self._known:
            self._known[key] = ""  # of views in a circle
            self._known[key] = self._check(dataset, name, key)
        return self._known[key]

    def _check(self, dataset: h5py.Dataset, name: str, key: tuple[str, str]) -> str:
        path = self.folder / name
        if name != "." and not path.is_file():
            return "which is missing"
        if name != ".":
            self.files[path] = None
        if len(self._known) > _MAX_OPENED or "%" in key[1]:
            return ""
        is_here = name == "."
        try:
            with contextlib.nullcontext(dataset.file) if is_here else contextlib.closing(self.open_file(path)) as file:
                return self._check_opened(dataset, file, key)
        except PenstockError as error:
            return f"which cannot be read: {error.message}"
        except self.errors as error:
            return f"which cannot be read: {error}"

    def _check_opened(self, dataset: h5py.Dataset, file: h5py.File, key: tuple[str, str]) -> str:
        other, inner = follow_links(file, key[1])
        if other and Path(other).name != other:
            return f"a link to {other!r}, which is not in this folder and not read"
        if other:
            self._known[key] = "which leads back to itself"
            reason = self._find_reason(dataset, other, inner)
            return reason and f"a link to {inner!r} of {other}, {reason}"
        source = file[inner]
        if source.external:
            return f"whose {describe_external(source)}"
        missing = self.find_missing(source) if source.is_virtual else ""
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


def follow_links(file: h5py.File, name: str) -> tuple[str, str]:
    """Return where a name in a file leads: the name of another file (empty: this one), and the path in it.

    No other file is opened, as HDF5 would. Raises ValueError if the name leads nowhere, and what h5py raises.
    """
    library = require("h5py")
    parts = [part for part in name.split("/") if part not in {"", "."}]
    for _ in range(_MAX_LINKS):
        for number in range(len(parts)):
            path = "/".join(parts[: number + 1])
            link = file.get(path, getlink=True)
            if link is None:
                raise ValueError(f"it has no {path!r}")
            if isinstance(link, library.ExternalLink):
                return str(link.filename), "/".join([link.path.strip("/"), *parts[number + 1 :]])
            if isinstance(link, library.SoftLink):
                above = [] if link.path.startswith("/") else parts[:number]
                below = [part for part in link.path.split("/") if part not in {"", "."}]
                parts = [*above, *below, *parts[number + 1 :]]
                break
        else:
            return "", "/".join(parts)
    raise ValueError(f"{name!r} leads through more than {_MAX_LINKS} links")


def describe_external(dataset: h5py.Dataset) -> str:
    """Why a dataset with external storage is not read, with the names of its files.

    HDF5 gives zeros where one of them is shorter, and finds them by the current folder.
    """
    names = quote_names([str(name) for name, _, _ in dataset.external], 5)
    return f"values are in other files (external storage: {names}), which are not read"
