"""One candidate of stage "loaders": ``python -m benches.device.candidates NAME TASK CORES BATCH PACK FILES REHEARSE``.

A process of its own on its own processor cores. It prepares, says "ready", and runs as many passes over the photographs
as each line of its input says; the answer is JSON: images, seconds, and seconds of the processor.

Each gives batches on the device, of float16, channels last where the library can: penstock and FFCV crop before they
decode, DALI too (``image_random_crop``); the decoders of torchvision and TorchCodec decode whole images, which are
cropped on the device afterwards. The bytes that these two are given were read in advance.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benches.device.program import use_cores
from benches.peers.serve import answer, jpegs

__all__ = ["CANDIDATES", "OURS", "Work", "find_hindrance"]


@dataclass(frozen=True)
class Work:
    """What a candidate is to do.

    Parameters
    ----------
    task : {"T1", "T2"}
        See ``tasks.py``.
    cores : int
        Processor cores, and threads.
    batch : int
        Images of a batch.
    pack : Path
        The photographs, packed.
    files : Path
        The same as files.
    rehearse : bool
        Whether there is no device.
    """

    task: str
    cores: int
    batch: int
    pack: Path
    files: Path
    rehearse: bool

    @property
    def paths(self) -> list[str]:
        """The files."""
        return jpegs(str(self.files))


Pass = Callable[[int], Iterator[Any]]
"""From a number of passes over the photographs to the batches, on the device."""


def decode_on_device(work: Work) -> Pass:
    """penstock, ``decode="cuda"``."""
    return _with_penstock(work, decode="cuda", channels_last=True)


def decode_on_processor(work: Work) -> Pass:
    """penstock on the processor, page-locked batches, ``prefetch``."""
    from penstock.torch import prefetch

    make = _with_penstock(work, decode="cpu", pin_memory=not work.rehearse)
    return lambda passes: iter(prefetch(make(passes), "cpu" if work.rehearse else "cuda"))


def _with_penstock(work: Work, **options: Any) -> Callable[[int], Any]:
    from benches.device.device import open_device
    from benches.device.tasks import open_dataset, pipelines
    from penstock.torch import DataLoader

    open_device(rehearse=work.rehearse)

    def make(passes: int) -> Any:
        data = open_dataset(work.pack, pipelines()[work.task], passes, limit=len(work.paths))
        return DataLoader(
            data, work.batch, shuffle=True, drop_last=True, seed=0, num_workers=work.cores, workers="threads", **options
        )

    return make


def dali(work: Work, *, whole: bool = False, load: float | None = None) -> Pass:
    """NVIDIA DALI, ``device="mixed"``."""
    from nvidia.dali import fn, pipeline_def, types  # type: ignore[import-untyped]  # without types

    from benches.device.tasks import DEVIATION, MEAN, SIZE

    engine = {} if load is None else {"hw_decoder_load": load}
    linear = {"interp_type": types.INTERP_LINEAR, "antialias": True}
    crop = {"random_aspect_ratio": [3 / 4, 4 / 3], "random_area": [0.08, 1.0]}

    @pipeline_def(batch_size=work.batch, num_threads=work.cores, device_id=0, seed=1)  # type: ignore[untyped-decorator]  # DALI has no types
    def graph() -> Any:
        encoded, labels = fn.readers.file(files=work.paths, labels=list(range(len(work.paths))), random_shuffle=True)
        if work.task == "T2":
            images = fn.resize(fn.decoders.image(encoded, device="mixed", **engine), resize_shorter=256, **linear)
        elif whole:
            images = fn.decoders.image(encoded, device="mixed", **engine)
            images = fn.random_resized_crop(images, size=(SIZE, SIZE), **crop, **linear)
        else:
            images = fn.decoders.image_random_crop(encoded, device="mixed", **crop, **engine)
            images = fn.resize(images, size=(SIZE, SIZE), **linear)
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT16, output_layout="HWC", crop=(SIZE, SIZE), mirror=fn.random.coin_flip(),
            mean=[255 * value for value in MEAN], std=[255 * value for value in DEVIATION],
        )  # fmt: skip
        return images, labels.gpu()

    pipeline = graph()
    pipeline.build()

    def run(passes: int) -> Iterator[Any]:
        for _ in range(passes * len(work.paths) // work.batch):
            images, _labels = pipeline.run()
            yield images.as_tensor()

    return run


def torchvision(work: Work) -> Pass:
    """torchvision's decoder on the device, then its transforms there."""
    from torchvision.io import ImageReadMode, decode_jpeg

    return _decode_whole(work, lambda encoded: list(decode_jpeg(encoded, mode=ImageReadMode.RGB, device="cuda")))


def torchcodec(work: Work) -> Pass:
    """TorchCodec's decoder on the device, then torchvision's transforms there."""
    from torchcodec.decoders import decode_jpeg

    return _decode_whole(work, lambda encoded: list(decode_jpeg(encoded, mode="RGB", device="cuda")))


def _decode_whole(work: Work, decode: Callable[[list[Any]], list[Any]]) -> Pass:
    import numpy as np
    import torch
    from torchvision.transforms import v2

    from benches.device.tasks import DEVIATION, MEAN, SIZE

    crops = {
        "T1": [v2.RandomResizedCrop(SIZE, antialias=True)],
        "T2": [v2.Resize(256, antialias=True), v2.CenterCrop(SIZE)],
    }
    geometry = v2.Compose([*crops[work.task], v2.RandomHorizontalFlip()])
    values = v2.Compose(
        [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION), v2.ToDtype(torch.float16)]
    )
    encoded = [torch.from_numpy(np.fromfile(path, np.uint8)) for path in work.paths]

    def run(passes: int) -> Iterator[Any]:
        order = torch.cat([torch.randperm(len(encoded)) for _ in range(passes)]).tolist()
        for start in range(0, len(order) - work.batch + 1, work.batch):
            images = decode([encoded[index] for index in order[start : start + work.batch]])
            yield values(torch.stack([geometry(image) for image in images]))

    next(run(passes=-(-work.batch // len(encoded))))  # an error now, where there is no decoder for the device
    return run


def ffcv(work: Work) -> Pass:
    """FFCV on the processor, whose last transforms copy to the device; its format holds the JPEGs as they are."""
    import numpy as np
    import torch
    from ffcv.fields import RGBImageField
    from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToDevice, ToTensor, ToTorchImage

    from benches.device.tasks import DEVIATION, MEAN, SIZE
    from benches.peers.ffcv_files import write_files

    path = f"{tempfile.mkdtemp()}/images.beton"
    write_files(path, work.paths)
    device, mean, deviation = torch.device("cuda:0"), 255 * np.array(MEAN), 255 * np.array(DEVIATION)
    crops = {"T1": RandomResizedCropRGBImageDecoder, "T2": lambda size: CenterCropRGBImageDecoder(size, SIZE / 256)}
    images = [
        crops[work.task]((SIZE, SIZE)), RandomHorizontalFlip(), ToTensor(), ToDevice(device, non_blocking=True),
        ToTorchImage(), NormalizeImage(mean, deviation, np.float16),
    ]  # fmt: skip

    def run(passes: int) -> Iterator[Any]:
        loader = Loader(
            path, batch_size=work.batch, num_workers=work.cores, os_cache=True, order=OrderOption.RANDOM,
            indices=np.tile(np.arange(len(work.paths)), passes), drop_last=True, custom_fields={"image": RGBImageField},
            pipelines={"image": images, "label": [IntDecoder(), ToTensor(), ToDevice(device)]},
        )  # fmt: skip
        yield from (batch[0] for batch in loader)

    return run


OURS: Final = "penstock, decode on the device"

PACKAGES: Final = {
    "DALI": "nvidia.dali",
    "torchvision": "torchvision",
    "TorchCodec": "torchcodec",
    "FFCV": "ffcv",
}
"""What candidates import, by the first word of their names."""


def find_hindrance(name: str, *, rehearse: bool) -> str:
    """Why a candidate cannot run here, without starting it; empty if it may."""
    package = PACKAGES.get(name.partition(" ")[0])
    if package is None:
        return ""
    with contextlib.suppress(ModuleNotFoundError):  # of "nvidia.dali", if there is no "nvidia"
        if importlib.util.find_spec(package) is not None:
            return "it needs a device" if rehearse else ""
    return f"{package} is not installed"


CANDIDATES: Final[dict[str, Callable[[Work], Pass]]] = {
    OURS: decode_on_device,
    "penstock, processor + pin_memory + prefetch": decode_on_processor,
    "DALI mixed": dali,
    "DALI mixed, hw_decoder_load=0": lambda work: dali(work, load=0.0),
    "DALI mixed, hw_decoder_load=1, whole images": lambda work: dali(work, whole=True, load=1.0),
    "torchvision decode_jpeg": torchvision,
    "TorchCodec decode_jpeg": torchcodec,
    "FFCV": ffcv,
}


def main(name: str, task: str, cores: str, batch: str, pack: str, files: str, rehearse: str) -> None:
    """Prepare, then answer each line."""
    work = Work(task, int(cores), int(batch), Path(pack), Path(files), rehearse == "True")
    os.environ["OMP_NUM_THREADS"] = cores
    import torch  # noqa: F401  # on all cores: all candidates start at once

    if not use_cores(work.cores):
        raise SystemExit(f"this machine has fewer than {work.cores} processor cores")

    def begin() -> Callable[[str], str]:
        try:
            run = CANDIDATES[name](work)
        except ImportError as error:
            sentence = json.dumps({"skipped": f"it cannot be imported: {error}"})
            return lambda _: sentence
        return lambda line: json.dumps(_measure(work, run, int(line)))

    try:
        answer(begin)
    except BaseException:  # noqa: BLE001  # also of Rust and C++
        traceback.print_exc()
        os._exit(1)  # threads of libraries would keep the process


def _measure(work: Work, run: Pass, passes: int) -> dict[str, float]:
    import torch

    cpu, started, images = _processor_s(), time.perf_counter(), 0
    for batch in run(passes):
        first = batch[0] if isinstance(batch, (list, tuple)) else batch
        images += first.shape()[0] if callable(first.shape) else first.shape[0]  # DALI has a method
    if not work.rehearse:
        torch.cuda.synchronize()
    return {"images": images, "seconds": time.perf_counter() - started, "processor_s": _processor_s() - cpu}


def _processor_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


if __name__ == "__main__":
    main(*sys.argv[1:])
