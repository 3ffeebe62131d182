"""torchvision's folders of images, decoded and augmented natively: the same samples in the same order.

::

    samples[i] = (path, class) ──read──> bytes ──Program──> rows of the batch          every transform recognised
                                           └────Program──> array ─> remaining ─> sample    the first few recognised
    loader(path) ──> PIL image ──> transform ──> sample                                  torchvision's code: none

The program is compiled for the dataset's present ``transform`` and ``loader``, and again when one of them is replaced.
``samples`` is read for each sample. Pillow decodes the formats that penstock does not know, as in torchvision.
:mod:`penstock.torch.vision.recognise` decides which transforms are recognised.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torchvision import datasets
from torchvision.transforms import transforms as v1

from penstock.datasets.error_location import add_location
from penstock.datasets.store.seek_tables import MEMORY_NBYTES
from penstock.errors import ArgumentError, DecodeError, ImageTooLargeError, SampleError
from penstock.rng import globals_of_sample, globals_put_back, sample_scope
from penstock.sample import Array, ArraySpec, Sample, SampleKeys, Tree
from penstock.torch.vision.images import open_rgb
from penstock.torch.vision.native_transform import NativeTransform
from penstock.torch.vision.recognise import NotRecognisedError, Transform
from penstock.torch.vision.recognise_reading import RecognisedReading, recognise_loader
from penstock.trace import stage
from penstock.transforms import Failure
from penstock.transforms.apply import apply_to_image
from penstock.transforms.base import Op
from penstock.transforms.decoding.fallback import sniff
from penstock.transforms.inputs import find_layouts
from penstock.transforms.program.image_chunk import ChunkSeekTables
from penstock.transforms.program.packet_program import PacketProgram, PacketRows, why_no_packets

__all__ = ["NATIVE", "ImageFolder", "NativeFolder", "UnreadableImageError"]

_logger = logging.getLogger(__name__)

_TARGET: Final = ArraySpec((), np.dtype(np.int64))
_CLASSES: Final = (int, np.int64)


class UnreadableImageError(DecodeError, OSError):
    """A file that is not a readable image. It is an ``OSError``, as Pillow's error is."""


class NativeFolder(datasets.DatasetFolder):  # type: ignore[misc]  # torchvision ships no types
    """The common base of the folders: a :class:`~penstock.datasets.base.Filler` over ``samples``."""

    _native: _FolderTransform | None = None

    def __getitem__(self, index: int) -> tuple[Sample, Sample]:
        """Return sample ``index``: ``(image, target)``, of torchvision's types.

        Recognised transforms run natively here too. In a penstock loader, their random numbers depend on the seed, the
        epoch and the index. Elsewhere they are seeded by torch's global generator, so ``torch.manual_seed`` fixes them.
        """
        native = self._current_transform()
        if native is None:
            sample: tuple[Sample, Sample] = super().__getitem__(index)
            return sample
        path, target = self.samples[index]
        image = native.load(path, index)
        return image, target if self.target_transform is None else self.target_transform(target)

    def spec(self) -> Tree | None:
        """Return the shape and dtype of image and target; None if not all transforms are native, or shapes differ.

        A ``target_transform`` is called once, to see whether it returns an int. If it raises, samples are collated.
        """
        # Compile again, because a transform's attributes may have changed since the last epoch.
        native = self._current_transform(recompile=True)
        if native is None or native.spec is None or self._has_own_methods() or not self.samples:
            return None
        try:
            with globals_put_back():  # restores the global generators
                target = self.samples[0][1]
                target = target if self.target_transform is None else self.target_transform(target)
        except Exception:  # noqa: BLE001  # the sample raises it again
            return None
        return (native.spec, _TARGET) if type(target) in _CLASSES else None

    def packet_spec(self) -> tuple[Tree | None, str]:
        """The spec with packets for a device in place of the image, or why there is none; ``fill`` then writes them."""
        native = self._current_transform()
        if native is None or self.spec() is None:
            return None, "not all of its transforms are native" if native is None else native.what
        packets = native.packets
        return (None, packets) if isinstance(packets, str) else ((packets.packet_spec(), _TARGET), "")

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Read, decode and augment images into rows of ``out``; see :class:`~penstock.datasets.base.Filler`."""
        native = self._current_transform()
        if native is None or native.spec is None:
            raise ArgumentError(
                "fill needs samples of one shape, but this dataset's spec() is None; load its samples instead"
            )
        if rows is None:
            rows = np.arange(len(indices), dtype=np.int64)
        chosen = []
        for index, drawn in zip(indices.tolist(), keys.indices.tolist(), strict=True):
            with sample_scope(keys.seed, keys.epoch, drawn):
                chosen.append(self.samples[index])
        native.fill([path for path, _ in chosen], indices, out[0], keys, rows)
        targets = [target for _, target in chosen]
        if self.target_transform is not None:
            targets = [self._transform_target(target, keys, i) for i, target in enumerate(targets)]
        for target, index in zip(targets, indices.tolist(), strict=True):
            if type(target) not in _CLASSES:
                raise SampleError(
                    f"the target must be an int, as that of the first sample, got {target!r}; pass a collate_fn to the "
                    "loader, which then collates samples",
                    index=index,
                )
        out[1][rows] = targets

    def _load_own(self, index: int) -> object:
        """The image of sample ``index`` as the code that is replaced here makes it."""
        return super().__getitem__(index)[0]

    def _transform_target(self, target: int, keys: SampleKeys, position: int) -> object:
        assert self.target_transform is not None
        with sample_scope(keys.seed, keys.epoch, int(keys.indices[position])):
            return self.target_transform(target)

    def fingerprint(self) -> str:
        """A hash of the paths below ``root`` and of the targets. A copy of the folder has the same fingerprint."""
        state, root = hashlib.blake2b(digest_size=16), str(self.root)
        for path, target in self.samples:
            state.update(f"{path.removeprefix(root)}\0{target}\n".encode(errors="surrogateescape"))
        return state.hexdigest()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_native"}

    def _has_own_methods(self) -> bool:
        """Return whether a subclass defines how samples are loaded."""
        cls = type(self)
        is_same = cls.__getitem__ is NativeFolder.__getitem__ and cls.__len__ is datasets.DatasetFolder.__len__
        return not is_same or hasattr(self, "__getitems__")

    def _current_transform(self, *, recompile: bool = False) -> _FolderTransform | None:
        """Return the program for the present transform and loader; None if nothing is native."""
        native = before = self._native
        if recompile or native is None or native.transform is not self.transform or native.loader is not self.loader:
            native = self._native = _FolderTransform(self.transform, self.loader, self._load_own)
            if before is None or before.what != native.what:
                _logger.info("%s(%r): %s", type(self).__name__, str(self.root), native.what)
        return native if native.program is not None else None


class ImageFolder(NativeFolder, datasets.ImageFolder):  # type: ignore[misc]  # torchvision ships no types
    """``torchvision.datasets.ImageFolder`` whose batches are decoded and augmented natively.

    Parameters
    ----------
    root : str or path
        A folder with one sub-folder a class.
    transform : callable, optional
        torchvision's transforms, v1 or v2, run natively from the first up to one for which penstock has no op. That one
        and all after it are called as usual.
    target_transform : callable, optional
        Called with each class number.
    loader : callable
        Replaced by native decoding if it reads and converts an image with Pillow, torchvision, TorchCodec or OpenCV, in
        a form that ``docs/torchvision.md`` lists; pixels are those of the library. Else it is called.
    is_valid_file : callable, optional
        Called with each path. The default checks the file name's extension.
    allow_empty : bool
        Whether a class may have no images.

    Notes
    -----
    This is a subclass of torchvision's class, whose code determines classes, samples, order and targets. For the same
    parameters, pixels differ from torchvision's on PIL images by at most one level of 255. 16-bit gray images are
    converted to 8 bits by their high byte; Pillow clips them. Random parameters come from penstock's generator, keyed
    by (seed, epoch, index), not from torch's. The logger "penstock.torch.vision" reports at level INFO what runs
    natively.

    Raises
    ------
    UnreadableImageError
        If a file is not a readable image. It is an ``OSError``, and states ``key`` (the path) and ``index``.
    """


class DatasetFolder(NativeFolder):
    """``torchvision.datasets.DatasetFolder``, with native batches as in :class:`ImageFolder`."""


class ImageNet(NativeFolder, datasets.ImageNet):  # type: ignore[misc]  # torchvision ships no types
    """``torchvision.datasets.ImageNet``, with native batches as in :class:`ImageFolder`."""


class EuroSAT(NativeFolder, datasets.EuroSAT):  # type: ignore[misc]  # torchvision ships no types
    """``torchvision.datasets.EuroSAT``, with native batches as in :class:`ImageFolder`."""


class Country211(NativeFolder, datasets.Country211):  # type: ignore[misc]  # torchvision ships no types
    """``torchvision.datasets.Country211``, with native batches as in :class:`ImageFolder`."""


NATIVE: Final[dict[type, type[NativeFolder]]] = {
    datasets.ImageFolder: ImageFolder,
    datasets.DatasetFolder: DatasetFolder,
    datasets.ImageNet: ImageNet,
    datasets.EuroSAT: EuroSAT,
    datasets.Country211: Country211,
}
"""torchvision's folders, and the classes here that replace them."""


class _FolderTransform(NativeTransform):
    """The program of a folder's transform. It reads paths, and returns images or fills rows.

    ``load_own`` makes the image of a sample by the code that is replaced, where its library decodes a file otherwise.
    """

    def __init__(self, transform: Transform, loader: object, load_own: Callable[[int], object]) -> None:
        self._tables: dict[str, bytes] = {}
        self._tables_nbytes = 0
        try:
            found = loader if isinstance(loader, RecognisedReading) else recognise_loader(loader)
        except NotRecognisedError as error:
            super().__init__(transform, f"the loader: {error}")
        else:
            self._find_source, self.reading = found.find_source, found.reading
            steps = [step for step in (*self.reading.steps, transform) if step is not None]
            whole = v1.Compose(steps) if self.reading.steps else transform
            super().__init__(whole, kind=self.reading.stage, orient=self.reading.library in {"torchcodec", "cv2"})
        self.loader, self.transform, self._load_own = loader, transform, load_own

    @functools.cached_property
    def packets(self) -> PacketProgram | str:
        """What writes packets for a device in place of images; a string says why there is none."""
        assert self.program is not None
        if self.reading.library != "PIL":
            return f"{self.reading.library} reads some files otherwise than penstock"
        return why_no_packets(self.program) or PacketProgram(self.program)

    def load(self, path: str, index: int) -> Sample:
        """Read, decode and transform one image."""
        assert self.program is not None
        keys = self.keys()
        encoded = _read([self._find_source(path)])[0]
        if not self.reading.reads_alike(encoded):
            return self._load_own(index)
        try:
            array = self.program.run([encoded], keys)[0]
        except DecodeError as error:
            if self.reading.library != "PIL":
                return self._load_own(index)
            array = self._decode_with_pillow(path, index, encoded, keys, error, self.program.ops)
        except Exception as error:  # noqa: BLE001  # raised again, with its location
            raise _with_location(error, path, index)  # noqa: B904  # the same object, or a chained one
        return self.finish(array, encoded)

    def fill(
        self, paths: list[str], indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64]
    ) -> None:
        """Write images into their rows. The first error is raised after all other images are written."""
        program, tables = self.program, None
        if isinstance(out, PacketRows):
            assert not isinstance(self.packets, str), "there is a spec for packets"
            program, tables = self.packets, self._seek_tables(paths)
        assert program is not None
        images = _read(list(map(self._find_source, paths)))
        failures: list[Failure] = []
        alike = [i for i, image in enumerate(images) if self.reading.reads_alike(image)]
        program.fill([images[i] for i in alike], out, keys[alike], rows[alike], failures=failures, seek_tables=tables)
        if tables is not None:
            self._keep_seek_tables(paths, tables)
        failed: Exception | None = None
        errors: dict[int, Exception] = {i: DecodeError("") for i in range(len(images)) if i not in alike}
        errors |= {alike[failure.position]: failure.error for failure in failures}
        for i, error in sorted(errors.items()):
            path, index = paths[i], int(indices[i])
            try:
                if isinstance(error, DecodeError) and self.reading.library != "PIL":
                    with sample_scope(keys.seed, keys.epoch, int(keys.indices[i])), globals_of_sample():
                        out[rows[i]] = self._load_row(path, index)
                    continue
                if not isinstance(error, DecodeError):
                    raise _with_location(error, path, index)  # noqa: TRY301  # all failures are handled below
                array = self._decode_with_pillow(path, index, images[i], keys[i : i + 1], error, program.ops)
                if isinstance(out, PacketRows):
                    out.write_pixels(rows[i], array)
                else:
                    out[rows[i]] = array
            except Exception as final:  # noqa: BLE001  # raised below
                failed = failed or final
        if failed is not None:
            raise failed

    def _load_row(self, path: str, index: int) -> object:
        value, spec = np.asarray(self._load_own(index)), self.spec
        if spec is None or (value.shape, value.dtype) != (spec.shape, spec.dtype):
            what = f"{self.reading.library} makes {value.dtype} {value.shape} of this file"
            raise SampleError(f"{what}, and a batch holds {spec}; convert the file", key=_name(path), index=index)
        return value

    def _seek_tables(self, paths: list[str]) -> ChunkSeekTables:
        """The seek tables of images whose packets were written before."""
        return ChunkSeekTables([self._tables.get(path) for path in paths], "tiles", any_kind=True)

    def _keep_seek_tables(self, paths: list[str], tables: ChunkSeekTables) -> None:
        for position, _, table in tables.found:
            if table is None:
                self._tables.pop(paths[position], None)
            elif self._tables_nbytes + len(table) <= MEMORY_NBYTES:
                self._tables[paths[position]] = table
                self._tables_nbytes += len(table)

    def _decode_with_pillow(
        self, path: str, index: int, encoded: bytes, keys: SampleKeys, error: DecodeError, ops: Sequence[Op]
    ) -> Array:
        """Decode with Pillow if penstock does not know the format; otherwise raise ``error``."""
        if isinstance(error, ImageTooLargeError):
            raise _with_location(error, path, index)
        error.where.pop("position", None)
        unreadable = UnreadableImageError(error.message, **error.where, key=_name(path), index=index)
        try:
            sniff(encoded[:32])
        except DecodeError:
            try:
                pixels = np.array(open_rgb(encoded))
            except OSError:
                raise unreadable from error
            transformed: Array = apply_to_image(ops, find_layouts(ops), pixels, keys, first=1)
            return transformed
        raise unreadable from error


def _read(sources: Sequence[object]) -> list[bytes]:
    """Read files; of the user's own code, also bytes, open files and arrays and tensors of bytes."""
    with stage("read", len(sources)):
        return [_read_one(source) for source in sources]


def _read_one(source: object) -> bytes:
    if isinstance(source, str | Path):
        return Path(source).read_bytes()
    found = source.read() if hasattr(source, "read") else source
    return found if isinstance(found, bytes) else np.asarray(found).tobytes()


def _with_location(error: Exception, path: str, index: int) -> BaseException:
    getattr(error, "where", {}).pop("position", None)
    return add_location(error, key=_name(path), index=index)


def _name(source: object) -> str:
    """The key of an image in errors: its path, or the type of what the user's code reads it from."""
    return source if isinstance(source, str) else type(source).__name__
