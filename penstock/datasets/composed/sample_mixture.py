"""Datasets whose samples are made of several samples of another one: the base class of Mosaic, SampleMixUp, CopyPaste.

::

    key (seed, epoch, index) ──derive_keys──┬── part 0: which samples are mixed, and how
                                            ├── part 1: the transform of the mixture
                                            └── parts 2, 3, ...: each picture, which the inner dataset builds

Sample ``index`` is made of sample ``index`` of the inner dataset and of others that are drawn by its key alone: any
number and kind of workers, and a resumed run, build the same bytes. The inner dataset is asked for all pictures of a
batch at once. Kinds of fields are those of pipelines. Nothing here knows how pictures are combined.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.base import Dataset, Wrapper, find_upright, iter_samples, prefetch
from penstock.datasets.composed.merged_fields import FieldRoles
from penstock.datasets.concat import make_watch
from penstock.datasets.error_location import add_location
from penstock.datasets.fingerprints import get_fingerprint
from penstock.datasets.store.image_transforms import as_pipeline
from penstock.datasets.store.ragged_fields import ragged_forms
from penstock.errors import ArgumentError, SampleError
from penstock.rng import derive_keys, next_keys, sample_scope
from penstock.sample import DatasetLike, Sample, SampleKeys, Tree, Watch
from penstock.transforms.base import uniforms
from penstock.transforms.checks import as_integer, as_probability
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.inputs import is_tensor
from penstock.transforms.targets.object_masks import ObjectMasks

__all__ = ["SampleMixture"]

_DRAWS, _TRANSFORM, _PICTURES = range(3)
"""Parts of a sample's key; pictures have the last ones."""

_MISSING: Final = object()


class SampleMixture(Dataset[Sample], Wrapper):
    """Base class: a subclass defines :attr:`pictures`, :attr:`numbers` and :meth:`combine`.

    Parameters
    ----------
    dataset : dataset
        Map-style, with a length and at least one sample. Its samples are mappings.
    p : float
        Probability that a sample is a mixture, in [0, 1].
    decode : Decode, optional
        How encoded images and masks are decoded.
    transform : Pipeline, list of ops, or callable, optional
        Called with each result; it draws by a key of its own.
    kinds : mapping of str to str, optional
        Kinds of fields (image, boxes, keypoints, mask, instances), as for :class:`~penstock.transforms.Pipeline`.
        Default: by their names.
    objects : sequence of str, optional
        Fields with one row for each box. Default: all arrays and lists that have no kind.
    epochs : int, optional
        Mix in the first ``epochs`` epochs only.
    """

    pictures: ClassVar[int]
    """Samples of the inner dataset in a mixture."""

    numbers: ClassVar[int] = 0
    """Random numbers that :meth:`combine` takes."""

    def __init__(
        self,
        dataset: DatasetLike,
        p: float,
        decode: Decode | None,
        transform: Callable[[Sample], Sample] | Sequence[object] | None,
        kinds: Mapping[str, str | None] | None,
        objects: Sequence[str] | None,
        epochs: int | None,
    ) -> None:
        if isinstance(objects, str):
            raise ArgumentError(f"objects must be a list of names of fields, got {objects!r}")
        self.dataset = dataset
        self.p = as_probability(p)
        self.decode = (Decode() if decode is None else decode).follow(find_upright(dataset), ("its annotations",))
        if not self.decode.is_plain:
            raise ArgumentError(
                f"{type(self).__name__} mixes RGB images, got decode={self.decode!r}; leave out mode, frame and to_srgb"
            )
        pipeline = as_pipeline(transform)
        self.transform = pipeline or transform
        self.kinds = None if kinds is None else dict(kinds)
        if pipeline is not None:
            pipeline.warn_of_unpaired_points(self.kinds or getattr(dataset, "kinds", None))
        self.objects = None if objects is None else tuple(objects)
        self.epochs = None if epochs is None else as_integer(epochs, "epochs", 0, 1 << 31)
        if not len(dataset):
            raise ArgumentError(f"{type(self).__name__} needs a dataset with at least one sample, got an empty one")

    def combine(self, samples: list[Sample], numbers: NDArray[np.float64], keys: SampleKeys) -> Sample:
        """Make one sample of several.

        Parameters
        ----------
        samples : list of mapping
            :attr:`pictures` samples of the inner dataset; one, if the sample is not mixed.
        numbers : ndarray, shape (numbers,), float64
            Uniform in [0, 1).
        keys : SampleKeys of length 1
            That of the transform, which is called with the result.
        """
        raise NotImplementedError(f"{type(self).__name__} must define combine")

    def build(self, samples: list[Sample], numbers: NDArray[np.float64], keys: SampleKeys) -> Sample:
        """Combine samples as :meth:`combine` does, and apply the transform."""
        return self._transformed(self.combine(samples, numbers, keys), keys)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample:
        """A sample. Outside of a loader it is a new mixture at each call."""
        index = operator.index(index)
        keys = next_keys() or SampleKeys(secrets.randbits(63), 0, np.array([index], np.int64))
        return next(self.iter_samples([index], keys))

    def wrapped_datasets(self) -> list[DatasetLike]:
        """Return the inner dataset."""
        return [self.dataset]

    def fetch_samples(self, indices: Sequence[int], keys: SampleKeys, watch: Watch | None) -> list[Sample]:
        """Return a batch of mixtures."""
        return list(self.iter_samples(indices, keys, watch))

    def iter_samples(self, indices: Sequence[int], keys: SampleKeys, watch: Watch | None = None) -> Iterator[Sample]:
        """Mixtures, each built when it is needed; the inner dataset gets the indices of all pictures at once."""
        parts = derive_keys(keys, _PICTURES + self.pictures).indices.reshape(len(keys), -1)
        numbers = uniforms(SampleKeys(keys.seed, keys.epoch, parts[:, _DRAWS]), 0, self.pictures + self.numbers)
        counts = np.where((numbers[:, 0] < self.p) & self._mixes_in(keys.epoch), self.pictures, 1)
        chosen = np.arange(self.pictures) < counts[:, None]
        inner = self._choose_pictures(indices, numbers[:, 1 : self.pictures], chosen)
        inner_keys = SampleKeys(keys.seed, keys.epoch, parts[:, _PICTURES:][chosen])
        watch_rows = make_watch(np.repeat(np.arange(len(keys)), counts).tolist(), watch)
        samples = iter_samples(self.dataset, inner, inner_keys, watch_rows)
        for row, (index, count) in enumerate(zip(indices, counts.tolist(), strict=True)):
            own = [_as_arrays(next(samples, _MISSING)) for _ in range(count)]
            if own[-1] is _MISSING:
                raise SampleError("load_samples must give one sample for each index, got fewer", index=index)
            after = SampleKeys(keys.seed, keys.epoch, parts[row : row + 1, _TRANSFORM])
            try:
                sample = self.build(own, numbers[row, self.pictures :], after)
            except BaseException as error:  # noqa: BLE001  # raised again, with its location
                raise add_location(error, index=index)  # noqa: B904  # the same object, or one that is chained
            yield sample

    def prefetch(self, indices: Sequence[int]) -> bool:
        """Look ahead to the samples themselves; those that are mixed with them are not known without a key."""
        return prefetch(self.dataset, indices)

    def fingerprint(self) -> str | None:
        """Return that of the inner dataset: how samples are mixed may change between runs, as a transform may."""
        return get_fingerprint(self.dataset)

    def ragged_forms(self) -> Tree | None:
        """Return the forms of the inner dataset; instances, which it has as they are stored, get that of boxes."""
        forms = ragged_forms(self.dataset)
        if not isinstance(forms, Mapping):
            return forms
        kinds = self.kinds or {name: name for name in forms}
        held = next((forms[name] for name, kind in kinds.items() if kind == "boxes" and name in forms), None)
        return {**forms, **{name: held for name, kind in kinds.items() if kind == "instances" and name in forms}}

    def roles(self, samples: Sequence[Sample]) -> FieldRoles:
        """Return what the fields of samples are; those that are mixed must have the same.

        Raises
        ------
        ArgumentError
            As :meth:`FieldRoles.find`, or if a sample lacks a field.
        """
        roles = FieldRoles.find(samples[0], self.kinds, self.objects, self)
        for sample in samples[1:]:
            lacking = [name for name in roles.names if name not in sample]
            if lacking:
                raise ArgumentError(
                    f"samples that are mixed must have the same fields, got one without {', '.join(lacking)}"
                )
        return roles

    def _mixes_in(self, epoch: int) -> bool:
        return self.epochs is None or epoch < self.epochs

    def _choose_pictures(
        self, indices: Sequence[int], numbers: NDArray[np.float64], chosen: NDArray[np.bool_]
    ) -> list[int]:
        """Indices of all pictures, sample by sample: each sample's own, and those drawn by ``numbers``, (n, others)."""
        others = (numbers * len(self.dataset)).astype(np.int64).tolist()
        every = [[index, *drawn] for index, drawn in zip(indices, others, strict=True)]
        return [
            index
            for row, wanted in zip(every, chosen.tolist(), strict=True)
            for index, is_wanted in zip(row, wanted, strict=True)
            if is_wanted
        ]

    def _transformed(self, sample: Sample, keys: SampleKeys) -> Sample:
        from penstock.transforms.pipeline import Pipeline

        if isinstance(self.transform, Pipeline):
            return self.transform(sample, keys=keys, kinds=self.kinds)
        for name in [name for name, value in sample.items() if isinstance(value, ObjectMasks)]:
            sample[name] = sample[name].dense()
        if self.transform is None:
            return sample
        with sample_scope(keys.seed, keys.epoch, int(keys.indices[0])):
            return self.transform(sample)  # type: ignore[operator]  # checked by as_pipeline

    def __repr__(self) -> str:
        settings = [
            f"{name}={value!r}" for name, value in vars(self).items() if name != "dataset" and value is not None
        ]
        return f"{type(self).__name__}({', '.join([repr(self.dataset), *settings])})"


def _as_arrays(sample: Sample) -> Sample:
    """A sample with arrays over the memory of its tensors, as penstock.torch.StoreDataset gives them."""
    if not isinstance(sample, Mapping):
        return sample
    return {name: np.asarray(value) if is_tensor(value) else value for name, value in sample.items()}
