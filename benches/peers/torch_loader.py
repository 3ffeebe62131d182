"""torch's DataLoader, two persistent processes: Pillow, TorchCodec or simplejpeg, then torchvision's v2 transforms."""

import io

import torch
from PIL import Image
from serve import BATCH, DEVIATION, MEAN, WORKERS, serve
from torch_images import TRAIN, simple
from torchcodec.decoders import decode_jpeg
from torchvision.transforms import v2


def pillow(content):
    return v2.functional.pil_to_tensor(Image.open(io.BytesIO(content)).convert("RGB"))


def codec(content):
    return decode_jpeg(torch.frombuffer(bytearray(content), dtype=torch.uint8), mode="RGB")


DECODERS = {"pillow": pillow, "torchcodec": codec, "simplejpeg": simple}


class Images(torch.utils.data.Dataset):
    """Decodes and transforms in Python."""

    def __init__(self, files, decode, transform):
        self.files, self.decode, self.transform = files, decode, transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index], "rb") as file:  # noqa: PTH123  # what is quickest
            return self.transform(self.decode(file.read())), index


def letterbox(image):
    _, height, width = image.shape
    scale = min(640 / height, 640 / width)
    size = [round(height * scale), round(width * scale)]
    if size != [height, width]:
        image = v2.functional.resize(image, size, antialias=False)
    across, down = 640 - size[1], 640 - size[0]
    return v2.functional.pad(image, [across // 2, down // 2, across - across // 2, down - down // 2], fill=114)


def make(task, candidate, files):
    torch.set_num_threads(1)
    floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)]
    transform = {
        "T3": v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224), *floats]),
        "T4": letterbox,
    }.get(task, TRAIN)
    loader = torch.utils.data.DataLoader(
        Images(files, DECODERS[candidate], transform),
        BATCH[task],
        shuffle=task != "T3",
        num_workers=WORKERS,
        drop_last=True,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return lambda: iter(loader)


serve(make)
