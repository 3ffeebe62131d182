"""FFCV over the JPEG files as they are: its dataset format with the encoded bytes, its own decoders."""

import tempfile

import numpy as np
import torch
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image
from serve import BATCH, DEVIATION, MEAN, WORKERS, serve


class AsIs(RGBImageField):
    """Keeps the file, where FFCV's own field would decode and encode again."""

    def encode(self, destination, path, malloc):
        content = np.fromfile(path, np.uint8)
        destination["mode"] = 0  # a JPEG
        destination["width"], destination["height"] = Image.open(path).size
        destination["data_ptr"], memory = malloc(content.nbytes)
        memory[:] = content


class Files:
    """Paths by number."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.files[index], index


def make(task, candidate, files):
    torch.set_num_threads(1)
    once = list(dict.fromkeys(files))
    path = tempfile.mkdtemp() + "/images.beton"
    fields = {"image": AsIs(write_mode="jpg"), "label": IntField()}
    DatasetWriter(path, fields, num_workers=1).from_indexed_dataset(Files(once))
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
