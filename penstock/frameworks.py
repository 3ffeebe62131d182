"""Libraries that penstock uses only after the program has imported them: torch, cv2.

::

    rng, collate, datasets, workers ──> FRAMEWORKS ──> Torch: sys.modules["torch"], penstock.torch.tensor_sharing
                                                  └──> Cv2:   sys.modules["cv2"]

A framework states what it has (stream types, arrays, a global random generator, ...) by overriding members of
:class:`Framework`, whose defaults do nothing. The modules that use frameworks name none of them: another one (JAX,
CuPy) is one more class here. No framework is imported here, but by :meth:`Framework.collate`. Code that must import a
framework to be written is in the module that ``extension`` names, which the framework imports when it is needed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from penstock.registry import is_awaited
from penstock.sample import Array, Batch, Sample

__all__ = [
    "FRAMEWORKS",
    "IMAGE_TRANSFORMS",
    "OP_NAMES",
    "REDUCERS",
    "SAMPLE_TRANSFORMS",
    "Framework",
    "array_types",
    "find_ranks",
    "imported_frameworks",
    "is_imported",
    "stream_types",
]

_OPS: Final = {
    'ToLayout("CHW", "float32")': "ToTensor ToTensorV2 ToDtype ToFloat ConvertImageDtype ToPureTensor",
    'ToLayout("CHW", "uint8")': "PILToTensor ToImage ToImageTensor",
    "Pipeline([...])": "Compose Sequential",
    "HorizontalFlip": "RandomHorizontalFlip Flip",
    "VerticalFlip": "RandomVerticalFlip",
    "Grayscale": "RandomGrayscale ToGray",
    "Invert": "RandomInvert InvertImg",
    "Posterize": "RandomPosterize",
    "Solarize": "RandomSolarize",
    "Sharpness": "RandomAdjustSharpness Sharpen",
    "AutoContrast": "RandomAutocontrast",
    "Equalize": "RandomEqualize",
    "RandAugment": "AutoAugment AugMix",
    "GaussianBlur": "Blur",
    "RandomErasing": "CoarseDropout Cutout Erasing",
    "RandomRotation": "Rotate SafeRotate",
    "RandomAffine": "Affine ShiftScaleRotate",
    "RandomPerspective": "Perspective",
    "RandomResizedCrop": "RandomSizedCrop",
    "RandomIoUCrop": "BBoxSafeRandomCrop RandomSizedBBoxSafeCrop AtLeastOneBBoxRandomCrop",
    "ScaleJitter": "RandomScale RandomResize",
    "Resize": "SmallestMaxSize Scale",
    "Letterbox": "LongestMaxSize PadIfNeeded",
    "ColorJitter": "RandomBrightnessContrast",
    "RandomHSV": "HueSaturationValue",
    "LookupTable.gamma": "RandomGamma",
    "Lambda": "RandomApply RandomChoice RandomOrder OneOf SomeOf",
}
OP_NAMES: Final = {other: own for own, others in _OPS.items() for other in others.split()}
"""By names of torchvision and albumentations: the ops of :mod:`penstock.transforms` that do the same."""

REDUCERS: Final[dict[type, Callable[[Any], Any]]] = {}
"""By type: functions that reduce values of exactly that type in a batch, as ``__reduce__`` does; ``NotImplemented``: as
pickle would. They may hand out large parts as pickle's buffers. Extensions add theirs."""

IMAGE_TRANSFORMS: Final[Mapping[str, str]] = {"torchvision": "penstock.torch.vision.images:TorchvisionImages"}
"""By package: the converter of its image transforms, for :mod:`penstock.datasets.store.image_transforms`."""

SAMPLE_TRANSFORMS: Final[Mapping[str, str]] = {
    "albumentations": "penstock.datasets.albumentations.samples:AlbumentationsSamples",
    "torchvision": "penstock.torch.vision.samples:convert",
}
"""By package: the converter of its transforms of whole samples, as above."""


class Framework:
    """A library with arrays, streams or random generators of its own."""

    name: ClassVar[str]
    """Of the module that the program imports."""
    packages: ClassVar[frozenset[str]] = frozenset()
    """Packages whose classes import it: a worker that unpickles such an object does, too."""
    preload: ClassVar[tuple[str, ...]] = ()
    """Modules that a fork server imports for such workers."""
    sets_up_workers: ClassVar[bool] = False
    """Whether :meth:`start_worker` does something."""
    seed_words: ClassVar[slice] = slice(0)
    """Which words of a sample's seed it gets; fixed, so that a new framework does not change the numbers of others."""

    @property
    def module(self) -> Any:
        """The module, which must be imported."""
        return sys.modules[self.name]

    def stream_types(self) -> tuple[type, ...]:
        """Types of datasets that are iterated, not indexed."""
        return ()

    def array_types(self) -> tuple[type, ...]:
        """Return types of its arrays; they have ``nbytes``."""
        return ()

    def seed(self, words: Array) -> None:
        """Seed its global random generator from the words at :attr:`seed_words`."""

    def rng_state(self) -> bytes | None:
        """State of its global random generator; None if it has none, or none that can be restored."""
        return None

    def restore_rng(self, state: bytes) -> None:
        """Restore a state that :meth:`rng_state` has returned."""

    def find_ranks(self) -> tuple[int, int] | None:
        """Number of ranks of its process group, and this process's rank; None without one."""
        return None

    def start_worker(self, worker: int, num_workers: int, seed: int, dataset: object) -> None:
        """Set up this process as a worker; see :class:`~penstock.workers.WorkerInfo`."""

    def import_for_workers(self) -> None:
        """Import what a worker uses of it, before processes are forked."""

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """The batch of ``samples`` by its own rules. May import it."""
        raise NotImplementedError(f"{self.name} does not collate")

    def convert(self, sample: Sample) -> Batch:
        """Return one sample by its own rules, without batching. May import it."""
        raise NotImplementedError(f"{self.name} does not convert samples")


class Torch(Framework):
    """The framework PyTorch."""

    name = "torch"
    packages = frozenset({"torch", "torchvision"})
    preload = ("torch.utils.data",)
    sets_up_workers = True
    seed_words = slice(6, 8)
    extension: ClassVar[str] = "penstock.torch.tensor_sharing"
    """Collates tensors into the memory of a worker's batch, and reduces them to buffers."""

    def stream_types(self) -> tuple[type, ...]:
        """``torch.utils.data.IterableDataset``, if that module is imported."""
        kind = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", None)
        return () if kind is None else (kind,)

    def array_types(self) -> tuple[type, ...]:
        """Return the class ``torch.Tensor``."""
        return (self.module.Tensor,)

    def seed(self, words: Array) -> None:
        """Seed the CPU's generator with 63 bits."""
        self.module.default_generator.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)

    def rng_state(self) -> bytes:
        """State of the CPU's generator."""
        state: bytes = self.module.default_generator.get_state().numpy().tobytes()
        return state

    def restore_rng(self, state: bytes) -> None:
        """Restore the state of the CPU's generator."""
        torch = self.module
        torch.default_generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))

    def find_ranks(self) -> tuple[int, int] | None:
        """World size and rank of ``torch.distributed``, if that is imported and initialized."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        return int(distributed.get_world_size()), int(distributed.get_rank())

    def start_worker(self, worker: int, num_workers: int, seed: int, dataset: object) -> None:
        """Set up a worker as torch does: one thread, the seed, ``torch.utils.data.get_worker_info()``."""
        torch = self.module
        torch.set_num_threads(1)
        torch.default_generator.manual_seed(seed)
        of_torch = torch.utils.data._utils.worker  # noqa: SLF001  # where torch's own get_worker_info looks
        of_torch._worker_info = of_torch.WorkerInfo(id=worker, num_workers=num_workers, seed=seed, dataset=dataset)  # noqa: SLF001  # as above
        importlib.import_module(self.extension).install()

    def import_for_workers(self) -> None:
        """Import the extension, and torch's reductions."""
        importlib.import_module("torch.multiprocessing")
        importlib.import_module(self.extension)

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Call ``torch.utils.data.default_collate(samples)``."""
        return importlib.import_module("torch.utils.data").default_collate(samples)

    def convert(self, sample: Sample) -> Batch:
        """``torch.utils.data.default_convert(sample)``, also for arrays of bfloat16."""
        return importlib.import_module("penstock.torch.collate").convert(sample)


class Cv2(Framework):
    """OpenCV, whose generator can be seeded, but not restored."""

    name = "cv2"
    seed_words = slice(8, 9)

    def seed(self, words: Array) -> None:
        """Seed the generator with 31 bits."""
        self.module.setRNGSeed(int(words[0]) >> 1)


FRAMEWORKS: Final[Mapping[str, Framework]] = {each.name: each for each in (Torch(), Cv2())}
"""By name; in the order in which their states are saved."""


def is_imported(name: str) -> bool:
    """Return whether the program has imported ``name``, to the end."""
    module = sys.modules.get(name)
    return (
        module is not None
        and not is_awaited(name)
        and not getattr(getattr(module, "__spec__", None), "_initializing", False)
    )


def imported_frameworks() -> list[Framework]:
    """Return the frameworks that the program has imported."""
    return [framework for name, framework in FRAMEWORKS.items() if is_imported(name)]


def find_ranks() -> tuple[int, int] | None:
    """Number of ranks and this process's rank, by the first imported framework that has a process group."""
    return next((found for framework in imported_frameworks() if (found := framework.find_ranks()) is not None), None)


def stream_types() -> tuple[type, ...]:
    """Types of streams of the frameworks that are imported."""
    return tuple(kind for framework in imported_frameworks() for kind in framework.stream_types())


def array_types() -> tuple[type, ...]:
    """Types of arrays of the frameworks that are imported."""
    return tuple(kind for framework in imported_frameworks() for kind in framework.array_types())
