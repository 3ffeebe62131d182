"""A user's dataset whose ``__getitem__`` reads an image by a known library, as a folder of torchvision's is compiled.

::

    samples[i] = what the rewritten __getitem__ returns: (path, target) ──> as torchvision's folders: folders.py

Which ``__getitem__`` is recognised: :mod:`penstock.torch.vision.recognise_reading`. Called by
:func:`penstock.torch.compile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.datasets.fingerprints import get_fingerprint
from penstock.rng import globals_of_sample
from penstock.torch.vision.folders import NativeFolder
from penstock.torch.vision.recognise_reading import RecognisedReading, keep_source, recognise_getitem

__all__ = ["ReadDataset"]


class ReadDataset(NativeFolder):
    """A dataset with the samples and the attributes of another, ``dataset``; its images are decoded natively.

    Raises
    ------
    NotRecognisedError
        If the ``__getitem__`` of ``dataset`` is not recognised: why.
    """

    def __init__(self, dataset: Sequence[tuple[object, ...]]) -> None:
        self.__dict__.update(getattr(dataset, "__dict__", {}))
        self.samples = _Sources(dataset)
        self.root, self.transform, self.target_transform = type(dataset).__qualname__, None, None
        self.loader = RecognisedReading(keep_source, self.samples.found.reading)

    def fingerprint(self) -> str | None:  # type: ignore[override]  # as any dataset's
        """That of the user's dataset; None if it has none."""
        return get_fingerprint(self.samples.dataset)

    def _load_own(self, index: int) -> object:
        return self.samples.dataset[index][0]


class _Sources(Sequence[tuple[object, object]]):
    """Path, or whatever else the user's code reads an image from, and target of each sample."""

    def __init__(self, dataset: Sequence[tuple[object, ...]]) -> None:
        self.dataset, self.found = dataset, recognise_getitem(dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[object, object]:  # type: ignore[override]  # no slices
        with globals_of_sample():
            pair = self.found.find_source(self.dataset, index)
        assert isinstance(pair, tuple), "recognise_getitem says so"
        return str(pair[0]) if isinstance(pair[0], Path) else pair[0], pair[1]

    def __reduce__(self) -> tuple[type, tuple[object]]:
        return _Sources, (self.dataset,)
