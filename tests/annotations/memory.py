"""Sources whose files are read from memory, so that a hundred thousand damaged copies of a file cost seconds."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from PIL import Image, UnidentifiedImageError

from penstock.annotations import reading
from penstock.annotations.source import AnnotationSource
from penstock.annotations.yolo import description as yolo_description
from penstock.annotations.yolo.description import parse_yaml
from penstock.orientation import PictureHeader

__all__ = ["MemorySource", "reading_from_memory"]


class MemorySource(AnnotationSource):
    """A source whose folder was read once: its tree stays as it is, and contents of files are those of a dict."""

    contents: ClassVar[dict[Path, bytes]] = {}
    lists: ClassVar[dict[tuple[object, ...], list[Path]]] = {}
    pictures: ClassVar[dict[Path, PictureHeader | str]] = {}

    def list_files(self, folder: Path | None = None, *suffixes: str) -> list[Path]:
        """As of the folder, which does not change."""
        key = self.folder if folder is None else folder, suffixes
        if key not in self.lists:
            self.lists[key] = super().list_files(folder, *suffixes)
        return list(self.lists[key])

    def read_bytes(self, path: Path) -> bytes:
        """From memory, where the file was there."""
        found = self.contents.get(path)
        return super().read_bytes(path) if found is None else found

    def read_start(self, path: Path, nbytes: int) -> bytes:
        """As :meth:`read_bytes`."""
        found = self.contents.get(path)
        return super().read_start(path, nbytes) if found is None else found[:nbytes]

    def open_image(self, path: Path) -> Image.Image:
        """As :meth:`read_bytes`."""
        found = self.contents.get(path)
        if found is None:
            return super().open_image(path)
        try:
            return Image.open(io.BytesIO(found))
        except UnidentifiedImageError:  # whose text names a path, or else an address
            raise UnidentifiedImageError(f"cannot identify image file {path}") from None

    def measure_image(self, path: Path) -> PictureHeader:
        """Read once for pictures that are not in memory."""
        if path not in self.contents:
            self._pictures = self.pictures
        try:
            return super().measure_image(path)
        finally:
            self._pictures = {}


@contextmanager
def reading_from_memory(contents: dict[Path, bytes]) -> Iterator[dict[Path, bytes]]:
    """Let :func:`penstock.annotations.read` take these files from memory; yields the dict, which may be changed."""
    MemorySource.contents, MemorySource.lists, MemorySource.pictures = dict(contents), {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "AnnotationSource", MemorySource)
        # half of the time of YOLO, for a text that is the same
        patch.setattr(yolo_description, "parse_yaml", functools.lru_cache(maxsize=64)(parse_yaml))
        yield MemorySource.contents
    MemorySource.contents, MemorySource.lists, MemorySource.pictures = {}, {}, {}
