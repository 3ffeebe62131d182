"""JPEG files in FFCV's dataset format, with the encoded bytes as they are."""

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter
from PIL import Image


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


def write_files(path, files):
    """Write fields "image" and "label", the number of the file."""
    fields = {"image": AsIs(write_mode="jpg"), "label": IntField()}
    DatasetWriter(path, fields, num_workers=1).from_indexed_dataset(Files(files))
