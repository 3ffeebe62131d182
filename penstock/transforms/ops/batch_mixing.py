"""MixUp and CutMix: each image and label of a batch is mixed with its neighbour in the batch.

Called between the loader and the model, on NumPy arrays or torch tensors, on their device, by their own operators or by
the native core, which gives the same results; torch is not imported. They are not ops, which take one sample. Random
numbers depend on ``(seed, epoch, batch)``, so that a resumed run mixes batch 117 as the first run did.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from penstock import _native
from penstock.errors import ArgumentError
from penstock.sample import Batch
from penstock.transforms.checks import as_integer

__all__ = ["CutMix", "MixUp"]

_MOST: Final = (1 << 64) - 1
_KEY: Final = 2
"""Second word of the Philox key; that of samples (:func:`penstock.rng.generator`) is 1."""


class _BatchMix:
    """Base class of both: arguments, randomness, and labels."""

    def __init__(self, alpha: float = 1.0, num_classes: int | None = None, seed: int = 0) -> None:
        if not 0 < alpha < math.inf:
            raise ArgumentError(f"alpha must be a positive number, got {alpha!r}")
        self.alpha = float(alpha)
        self.num_classes = None if num_classes is None else as_integer(num_classes, "num_classes", 1, 1 << 31)
        self.seed = as_integer(seed, "seed", 0, _MOST)

    def __call__(self, images: Batch, labels: Batch, *, batch: int, epoch: int = 0) -> tuple[Batch, Batch]:
        """Mix one batch.

        Parameters
        ----------
        images : array or tensor, shape (n, ...)
            Not changed.
        labels : array or tensor, shape (n,) or (n, num_classes)
            Class numbers, or one share per class.
        batch, epoch : int
            Number of the batch and the epoch; the same numbers give the same result.

        Returns
        -------
        images, targets
            New arrays; targets are (n, num_classes) shares that sum to 1 (float32 from class numbers).

        Raises
        ------
        ArgumentError
            If shapes do not agree, or a class number is out of range.
        """
        if len(images) != len(labels) or labels.ndim not in {1, 2}:
            raise ArgumentError(
                f"labels must have one class number, or one row of shares, for each of {len(images)} images, got "
                f"shape {tuple(labels.shape)}"
            )
        mixed, share = self._mix(images, self._generator(batch, epoch))
        return mixed, self.mix_labels(labels, share)

    def mix_labels(self, labels: Batch, share: float) -> Batch:
        """Return the targets of a batch whose images keep ``share`` of themselves: (n, num_classes) shares."""
        targets = self._shares(labels)
        return targets * share + targets[_partners(len(labels))] * (1 - share)

    def _generator(self, batch: int, epoch: int) -> np.random.Generator:
        counter = np.array(
            [0, 0, as_integer(batch, "batch", 0, _MOST), as_integer(epoch, "epoch", 0, _MOST)], np.uint64
        )
        return np.random.Generator(np.random.Philox(counter=counter, key=np.array([self.seed, _KEY], np.uint64)))

    def _mix(self, images: Batch, draw: np.random.Generator) -> tuple[Batch, float]:
        """Return the mixed images, and the share of each image itself."""
        raise NotImplementedError

    def _shares(self, labels: Batch) -> Batch:
        """Return one row of shares for each label."""
        if labels.ndim == 2:
            if self.num_classes not in {None, labels.shape[1]}:
                raise ArgumentError(f"labels must have num_classes={self.num_classes} columns, got {labels.shape[1]}")
            return labels
        if self.num_classes is None:
            raise ArgumentError(f"num_classes must be given to {type(self).__name__}, because labels are class numbers")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.num_classes:
            raise ArgumentError(f"labels must be in [0, {self.num_classes - 1}], got {labels.min()} to {labels.max()}")
        if isinstance(labels, np.ndarray):
            shares: Batch = np.zeros((len(labels), self.num_classes), np.float32)
        else:
            shares = labels.new_zeros((len(labels), self.num_classes)).float()  # a tensor, where the labels are
        shares[list(range(len(labels))), labels] = 1
        return shares

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class MixUp(_BatchMix):
    """Each image and label is mixed with the one before it in the batch: ``share * own + (1 - share) * neighbour``.

    ``torchvision.transforms.v2.MixUp``: one share for the batch, Beta(alpha, alpha).

    Parameters
    ----------
    alpha : float
        Positive. 1: shares are uniform; below 1: mostly near 0 or 1.
    num_classes : int, optional
        Of labels that are class numbers.
    seed : int
        Determines the random numbers, with the epoch and the number of the batch.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Images are floats, of any layout. Batches should be shuffled, so that neighbours are independent. Thread-safe; can
    be pickled.

    H. Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from penstock.transforms import MixUp
    >>> images, labels = np.zeros((4, 3, 8, 8), np.float32), np.array([0, 1, 2, 1])
    >>> mixed, targets = MixUp(alpha=0.2, num_classes=3, seed=7)(images, labels, batch=0)
    >>> targets.shape, targets.sum(axis=1).round(6).tolist()
    ((4, 3), [1.0, 1.0, 1.0, 1.0])
    """

    def draw_share(self, *, batch: int, epoch: int = 0) -> float:
        """The share of each image itself in a batch, for other code that mixes images."""
        return self._share(self._generator(batch, epoch))

    def _share(self, draw: np.random.Generator) -> float:
        return float(draw.beta(self.alpha, self.alpha))

    def _mix(self, images: Batch, draw: np.random.Generator) -> tuple[Batch, float]:
        if "float" not in str(images.dtype):
            raise ArgumentError(f"MixUp needs float images, got {images.dtype}; put it after Normalize and ToLayout")
        share = self._share(draw)
        pair = _as_native(images)
        if pair is None:
            return images[_partners(len(images))] * (1 - share) + images * share, share
        values, mixed, target = pair
        _native.mix(values, share, 1 - share, target)
        return mixed, share


class CutMix(_BatchMix):
    """A rectangle of each image is replaced by that of the image before it; labels are mixed by area.

    ``torchvision.transforms.v2.CutMix``: one rectangle for the batch; its area is ``1 - Beta(alpha, alpha)`` of an
    image's before it is clipped.

    Parameters
    ----------
    alpha : float
        Positive. 1: areas are uniform; below 1: mostly near none or all of the image.
    num_classes : int, optional
        Of labels that are class numbers.
    seed : int
        Determines the random numbers, with the epoch and the number of the batch.
    layout : {"CHW", "HWC"}
        Order of an image's axes.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Images of any dtype. Batches should be shuffled, so that neighbours are independent. Thread-safe; can be pickled.

    S. Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features", ICCV 2019.
    """

    def __init__(self, alpha: float = 1.0, num_classes: int | None = None, seed: int = 0, layout: str = "CHW") -> None:
        super().__init__(alpha, num_classes, seed)
        if layout not in {"CHW", "HWC"}:
            raise ArgumentError(f"layout must be 'CHW' or 'HWC', got {layout!r}")
        self.layout = layout

    def draw_rectangle(self, width: int, height: int, *, batch: int, epoch: int = 0) -> tuple[int, int, int, int]:
        """Return the rectangle of a batch of images of this size, x0, y0, x1, y1, for other code that mixes images."""
        return self._rectangle(width, height, self._generator(batch, epoch))

    def _mix(self, images: Batch, draw: np.random.Generator) -> tuple[Batch, float]:
        if images.ndim != 4:
            raise ArgumentError(
                f"CutMix needs a batch of shape (n, {', '.join(self.layout)}), got {tuple(images.shape)}"
            )
        height, width = images.shape[2:] if self.layout == "CHW" else images.shape[1:3]
        x0, y0, x1, y1 = self._rectangle(int(width), int(height), draw)
        place: tuple[slice, ...] = (slice(None), slice(y0, y1), slice(x0, x1))
        if self.layout == "CHW":
            place = (slice(None), *place)
        mixed = images.clone() if hasattr(images, "clone") else images.copy()
        mixed[place] = images[place][_partners(len(images))]
        return mixed, 1 - (x1 - x0) * (y1 - y0) / (width * height)

    def _rectangle(self, width: int, height: int, draw: np.random.Generator) -> tuple[int, int, int, int]:
        """Draw a rectangle: x0, y0, x1, y1."""
        reach = 0.5 * math.sqrt(1 - draw.beta(self.alpha, self.alpha))
        x, y = int(draw.integers(width)), int(draw.integers(height))
        across, down = int(reach * width), int(reach * height)
        return max(x - across, 0), max(y - down, 0), min(x + across, width), min(y + down, height)


def _as_native(images: Batch) -> tuple[Batch, Batch, Batch] | None:
    """Return the images as an array, a new batch like them, and that batch as an array.

    It is None if the native core takes neither.

    It takes C-contiguous float32 in host memory, without gradients.
    """
    if isinstance(images, np.ndarray):
        if images.dtype != np.float32 or not images.flags.c_contiguous:
            return None
        mixed = np.empty(images.shape, np.float32)
        return images, mixed, mixed
    if type(images).__module__ != "torch" or str(images.layout) != "torch.strided" or images.device.type != "cpu":
        return None
    if str(images.dtype) != "torch.float32" or not images.is_contiguous() or images.requires_grad:
        return None
    tensor = images.new_empty(images.shape)
    return images.numpy(), tensor, tensor.numpy()


def _partners(count: int) -> list[int]:
    """Return the partner of each image: the one before it; of the first, the last."""
    return [(i - 1) % count for i in range(count)]
