"""Patches of images in a Zarr group: the array ``images`` of shape (n, height, width, 3), and the array ``labels``.

An example of a store in a distribution of its own; ``docs/howto/own-store.md`` explains it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock import Field, Record, Schema, StoreError, StoreNotFoundError, system
from penstock.stores.base import PathLike
from penstock.stores.container import DAMAGE, ContainerStore, naming_damage

__all__ = ["ZarrPatchesStore", "write_patches"]


class ZarrPatchesStore(ContainerStore[Any]):
    """A Zarr group of patches, with the names of the classes in its attribute ``classes``."""

    kind = "zarr-patches"
    damage = (*DAMAGE, RuntimeError)  # codecs of Zarr raise it for wrong bytes

    def __init__(self, path: PathLike) -> None:
        folder = self.locate(path).local_path
        if not folder.is_dir():
            raise StoreNotFoundError("there is no store at this path", store=str(folder))
        files = sorted(each for each in folder.rglob("*") if not each.is_dir())
        super().__init__(path, files=files)  # refuses what is no regular file, and notices changes
        with naming_damage("the Zarr group", self.url, self.damage):
            group = self.open_files()
            images, labels = group["images"], group["labels"]
            if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
                raise ValueError(f"images must be (n, height, width, 3) of uint8, got {images.shape} of {images.dtype}")
            if labels.shape != images.shape[:1]:
                raise ValueError(f"labels must be one for each of {len(images)} images, got shape {labels.shape}")
            self._count, height, width, _ = images.shape
            classes = tuple(map(str, group.attrs.get("classes", ())))
        self._schema = Schema({"image": Field(f"pixels:uint8[{height},{width},3]"), "label": Field("label", classes)})

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Whether a path is a folder with the metadata of a group, and an array of images."""
        folder = Path(path)
        return (folder / "zarr.json").is_file() and (folder / "images" / "zarr.json").is_file()

    def __len__(self) -> int:
        return int(self._count)

    def open_files(self) -> Any:
        """Open the group, once in each process."""
        import zarr  # only where such a store is opened

        self._refuse_fork()
        return zarr.open_group(os.fspath(self.location), mode="r")

    def _refuse_fork(self) -> None:
        """Raise StoreError in a forked child: it lacks the thread of Zarr, and would wait for it for ever."""
        if system.used_before_fork("Zarr"):
            raise StoreError("Zarr does not support fork; start workers by forkserver or spawn", store=self.url)
        system.note_use("Zarr")

    def read_record(self, opened: Any, index: int) -> Record:
        """Read one patch and its label."""
        self._refuse_fork()
        image = opened["images"][index]
        image.setflags(write=False)
        return Record(index, str(index), {"image": image, "label": int(opened["labels"][index])})

    def read_column(self, opened: Any, field: str) -> Iterable[object]:
        """Read the labels, without images."""
        del field  # there is one column
        return list(map(int, opened["labels"][:]))


def write_patches(folder: Path, images: NDArray[np.uint8], labels: NDArray[np.int64], classes: Iterable[str]) -> None:
    """Write a group, in place of one that is there."""
    import zarr

    group = zarr.open_group(folder, mode="w", attributes={"classes": list(classes)})
    chunks = (64, *images.shape[1:])
    group.create_array("images", data=images, chunks=chunks)
    group.create_array("labels", data=labels)
