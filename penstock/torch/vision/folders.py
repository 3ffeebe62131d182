"""torchvision's folders of images, filled natively: the same samples in the same order, by another way.

::

    samples[i] = (path, class) ──read──> bytes ──Program──> rows of the batch          every transform recognised
                                           └────Program──> array ─> the rest ─> sample     the first few recognised
    loader(path) ──> PIL image ──> transform ──> sample                                  torchvision's own: none

The program belongs to the dataset's present ``transform`` and ``loader``, and is made anew when they are exchanged;
``samples`` is read anew for each sample. What penstock's decoder does not know, Pillow is asked for, as torchvision
would have. :mod:`penstock.torch.vision.recognise` says what is recognised.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torchvision
from numpy.typing import NDArray
from torchvision import datasets
from torchvision.datasets import folder

from penstock.datasets.base import located
from penstock.errors import ArgumentError, DecodeError, ImageTooLargeError, SampleError
from penstock.rng import globals_put_back, sample_scope
from penstock.sample import ArraySpec, SampleKeys, Tree
from penstock.torch.vision.native import Native
from penstock.trace import stage
from penstock.transforms import Failure
from penstock.transforms.apply import apply_to_image
from penstock.transforms.fallback import sniff

__all__ = ["NATIVE", "ImageFolder", "NativeFolder", "UnreadableImageError"]

_logger = logging.getLogger(__name__)

_LOADERS: Final = (folder.default_loader, folder.pil_loader)
_TARGET: Final = ArraySpec((), np.dtype(np.int64))


class UnreadableImageError(DecodeError, OSError):
    """A file that is not a readable image; an ``OSError`` as Pillow's own are, for who catches those."""


class NativeFolder(datasets.DatasetFolder):  # type: ignore[misc]  # torchvision ships no types
    """What the folders share: :class:`~penstock.datasets.base.Filler` over ``samples``."""

    _native: _Native | None = None

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Sample ``index``, as torchvision's: ``(image, target)``.

        The recognised transforms run natively here too. Their random numbers are those of the sample that a penstock
        loader is building; outside of one they are seeded by torch's global generator, so that ``torch.manual_seed``
        fixes them.
        """
        native = self._current()
        if native is None:
            sample: tuple[Any, Any] = super().__getitem__(index)
            return sample
        path, target = self.samples[index]
        image = native.image(path, index)
        return image, target if self.target_transform is None else self.target_transform(target)

    def spec(self) -> Tree | None:
        """Shape and dtype of image and target; None where the transforms do not end natively in one shape.

        A ``target_transform`` is called once here, to see whether it gives ints; if it raises, samples are collated.
        """
        native = self._current(anew=True)  # settings inside the transform may have been changed since the last epoch
        if native is None or native.spec is None or not self._is_plain() or not self.samples:
            return None
        target = self.samples[0][1]
        if self.target_transform is not None:
            try:
                with globals_put_back():  # looking must not change what is drawn later
                    target = self.target_transform(target)
            except Exception:  # noqa: BLE001  # raised again by the sample that it belongs to
                return None
        return (native.spec, _TARGET) if type(target) is int else None

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Read, decode and augment straight into ``out``; see :class:`~penstock.datasets.base.Filler`."""
        native = self._current()
        if native is None or native.spec is None:
            raise ArgumentError("samples of this dataset have no fixed shape: there are no rows to fill")
        if rows is None:
            rows = np.arange(len(indices), dtype=np.int64)
        chosen = [self.samples[i] for i in indices.tolist()]
        native.fill([path for path, _ in chosen], indices, out[0], keys, rows)
        targets = [target for _, target in chosen]
        if self.target_transform is not None:
            targets = [self._transformed(target, keys, place) for place, target in enumerate(targets)]
        for target, index in zip(targets, indices.tolist(), strict=True):
            if type(target) is not int:
                raise SampleError(
                    f"this target is {target!r}, where the first was an int; give the loader a collate_fn, and batches "
                    "are collated from samples",
                    index=index,
                )
        out[1][rows] = targets

    def _transformed(self, target: int, keys: SampleKeys, place: int) -> Any:
        assert self.target_transform is not None
        with sample_scope(keys.seed, keys.epoch, int(keys.indices[place])):
            return self.target_transform(target)

    def fingerprint(self) -> str:
        """A hash of paths below ``root`` and of classes: another copy of the folder is the same, wherever it lies."""
        state, root = hashlib.blake2b(digest_size=16), str(self.root)
        for path, target in self.samples:
            state.update(f"{path.removeprefix(root)}\0{target}\n".encode(errors="surrogateescape"))
        return state.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_native"}

    def _is_plain(self) -> bool:
        """Whether samples are what this class makes of them: a subclass with its own ``__getitem__`` knows better."""
        cls = type(self)
        own = cls.__getitem__ is NativeFolder.__getitem__ and cls.__len__ is datasets.DatasetFolder.__len__
        return own and not hasattr(self, "__getitems__")

    def _current(self, *, anew: bool = False) -> _Native | None:
        """The program of the present transform and loader; None where torchvision's own way is taken."""
        native = before = self._native
        if anew or native is None or native.transform is not self.transform or native.loader is not self.loader:
            native = self._native = _Native(self.transform, self.loader)
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
        Of torchvision's transforms, v1 or v2, those that penstock has an op for run natively, from the first up to
        one that is not recognised; that one and all behind it are called as they are.
    target_transform : callable, optional
        Called with each class number.
    loader : callable
        Only torchvision's own loader for PIL images is replaced.
    is_valid_file : callable, optional
        Called with each path, instead of judging by the file name's end.
    allow_empty : bool
        Whether a class may have no image.

    Notes
    -----
    Classes, samples, order and targets are torchvision's, by its own code, and ``isinstance`` holds. Pixels agree with
    torchvision's on PIL images within one level of 255 for the same parameters; 16-bit gray images are brought
    to 8 bits by their high byte, where Pillow clips. Random parameters are drawn by penstock's generator, keyed
    by (seed, epoch, index), not by torch's. ``logging.getLogger("penstock.torch.vision")`` says at level INFO what runs
    natively.

    Raises
    ------
    UnreadableImageError
        For a file that is no image; it is an ``OSError``, and names ``key`` (the path) and ``index``.
    """


class DatasetFolder(NativeFolder):
    """``torchvision.datasets.DatasetFolder`` likewise."""


class ImageNet(NativeFolder, datasets.ImageNet):  # type: ignore[misc]  # torchvision ships no types
    """``torchvision.datasets.ImageNet`` likewise."""


class EuroSAT(NativeFolder, datasets.EuroSAT):  # type: ignore[misc]  # torchvision ships no types
    """``torchvision.datasets.EuroSAT`` likewise."""


class Country211(NativeFolder, datasets.Country211):  # type: ignore[misc]  # torchvision ships no types
    """``torchvision.datasets.Country211`` likewise."""


NATIVE: Final[dict[type, type[NativeFolder]]] = {
    datasets.ImageFolder: ImageFolder,
    datasets.DatasetFolder: DatasetFolder,
    datasets.ImageNet: ImageNet,
    datasets.EuroSAT: EuroSAT,
    datasets.Country211: Country211,
}
"""torchvision's folders, and those that fill in their place."""


class _Native(Native):
    """The program of a folder's transform: from paths to images and rows."""

    def __init__(self, transform: Any, loader: Callable[[str], Any]) -> None:
        self.loader = loader
        if loader not in _LOADERS or (loader is folder.default_loader and torchvision.get_image_backend() != "PIL"):
            super().__init__(transform, "its loader is not torchvision's for PIL images")
        else:
            super().__init__(transform)

    def image(self, path: str, index: int) -> Any:
        """One image, of the type that the whole transform gives."""
        assert self.program is not None
        keys = self.keys()
        encoded = _read([path])[0]
        try:
            array = self.program.run([encoded], keys)[0]
        except DecodeError as error:
            array = self._mended(path, index, encoded, keys, error)
        except Exception as error:  # noqa: BLE001  # raised again, with its place
            raise _placed(error, path, index)  # noqa: B904  # the same object, or one that is chained
        return self.finished(array, encoded)

    def fill(
        self, paths: list[str], indices: NDArray[np.int64], out: NDArray[Any], keys: SampleKeys, rows: NDArray[np.int64]
    ) -> None:
        """Write images into their rows; the first that fails is raised when the others are written."""
        assert self.program is not None
        images = _read(paths)
        failures: list[Failure] = []
        self.program.fill(images, out, keys, rows, failures=failures)
        failed: Exception | None = None
        for failure in sorted(failures, key=lambda failure: failure.position):
            i, error = failure.position, failure.error
            path, index = paths[i], int(indices[i])
            try:
                if not isinstance(error, DecodeError):
                    raise _placed(error, path, index)  # noqa: TRY301  # one way for all that fail
                out[rows[i]] = self._mended(path, index, images[i], keys[i : i + 1], error)
            except Exception as final:  # noqa: BLE001  # raised below
                failed = failed or final
        if failed is not None:
            raise failed

    def _mended(self, path: str, index: int, encoded: bytes, keys: SampleKeys, error: DecodeError) -> NDArray[Any]:
        """The image through Pillow, if its format is one that penstock does not know; else ``error``."""
        assert self.program is not None
        if isinstance(error, ImageTooLargeError):
            raise _placed(error, path, index)
        error.where.pop("position", None)
        unreadable = UnreadableImageError(error.message, **error.where, key=path, index=index)
        try:
            sniff(encoded[:32])
        except DecodeError:
            try:
                pixels = np.array(folder.pil_loader(path))
            except OSError:
                raise unreadable from error
            mended: NDArray[Any] = apply_to_image(self.program.ops, pixels, keys, first=1)
            return mended
        raise unreadable from error


def _read(paths: list[str]) -> list[bytes]:
    with stage("read", len(paths)):
        return [Path(path).read_bytes() for path in paths]


def _placed(error: Exception, path: str, index: int) -> BaseException:
    getattr(error, "where", {}).pop("position", None)
    return located(error, key=path, index=index)
