"""A user's dataset whose ``__getitem__`` reads an image by a known library, as a folder of torchvision's is compiled.

::

    samples[i] = what the rewritten __getitem__ returns: (path, target) ──> as torchvision's folders: folders.py

Which ``__getitem__`` is recognised: :mod:`penstock.torch.vision.recognise_reading`. Called by
:func:`penstock.torch.compile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import FunctionType

from penstock.datasets.user_code import is_user_code
from penstock.rng import globals_of_sample
from penstock.sample import DatasetLike, Sample
from penstock.torch.vision.folders import NativeFolder
from penstock.torch.vision.recognise import NotRecognisedError
from penstock.torch.vision.recognise_reading import RecognisedReading, keep_source, recognise_getitem

__all__ = ["ReadDataset"]


class ReadDataset(NativeFolder):
    """A dataset with the samples and the attributes of another, ``dataset``; its images are decoded natively.

    Raises
    ------
    NotRecognisedError
        If the ``__getitem__`` of ``dataset`` is not recognised: why.
    """

    def __init__(self, dataset: DatasetLike) -> None:
        function = getattr(type(dataset), "__getitem__", None)
        if not (isinstance(function, FunctionType) and is_user_code(function)):
            raise NotRecognisedError("penstock does not know this class, and its __getitem__ is not the user's own")
        self.__dict__.update(getattr(dataset, "__dict__", {}))
        self.samples = _Samples(dataset)
        self.root, self.transform, self.target_transform = type(dataset).__qualname__, None, None
        self.loader = RecognisedReading(keep_source, recognise_getitem(dataset).reading)

    def _load_own(self, index: int) -> Sample:
        return self.samples.dataset[index][0]


class _Samples(Sequence[tuple[object, object]]):
    """Path, or whatever else the user's code reads an image from, and target of each sample."""

    def __init__(self, dataset: DatasetLike) -> None:
        self.dataset, self._find_source = dataset, recognise_getitem(dataset).find_source

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[object, object]:  # type: ignore[override]  # no slices
        with globals_of_sample():
            source, target = self._find_source(self.dataset, index)
        return (str(source) if isinstance(source, Path) else source), target

    def __reduce__(self) -> tuple[type, tuple[DatasetLike]]:
        return _Samples, (self.dataset,)
