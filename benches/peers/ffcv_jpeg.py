"""FFCV over the JPEG files as they are: its dataset format with the encoded bytes, its own decoders."""

import tempfile

import numpy as np
import torch
from ffcv.fields import RGBImageField
from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv_files import write_files
from serve import BATCH, DEVIATION, MEAN, WORKERS, serve


def make(task, candidate, files):
    torch.set_num_threads(1)
    once = list(dict.fromkeys(files))
    path = tempfile.mkdtemp() + "/images.beton"
    write_files(path, once)
    mean, deviation = (np.array([255 * value for value in values]) for values in (MEAN, DEVIATION))
    if task == "T3":
        geometry = [CenterCropRGBImageDecoder((224, 224), ratio=224 / 256)]
    else:
        geometry = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]
    images = [*geometry, NormalizeImage(mean, deviation, np.float32), ToTensor(), ToTorchImage(channels_last=True)]
    loader = Loader(
        path,
        batch_size=BATCH[task],
        num_workers=WORKERS,
        os_cache=True,
        order=OrderOption.SEQUENTIAL if task == "T3" else OrderOption.RANDOM,
        indices=np.tile(np.arange(len(once)), len(files) // len(once)),
        drop_last=True,
        custom_fields={"image": RGBImageField},
        pipelines={"image": images, "label": [IntDecoder(), ToTensor()]},
    )
    return lambda: iter(loader)


serve(make)
