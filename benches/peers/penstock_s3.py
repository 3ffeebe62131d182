"""penstock: a pack without an index, read with a global shuffle."""

from pathlib import Path

from serve import BATCH, WORKERS, read_jpeg, serve_s3

import penstock as ps
from penstock import transforms as T

PACK = "photos.lmdb"


def write(files, folder):
    records = [{"image": read_jpeg(number, file), "label": number} for number, file in enumerate(files)]
    ps.pack(records, Path(folder) / PACK, index="none")


def make(url, cache):
    pipeline = [T.Decode(), T.RandomResizedCrop(224), T.HorizontalFlip()]
    pipeline += [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
    store = ps.open(f"{url}/{PACK}", cache=cache, cache_size="100GB")
    data = ps.StoreDataset(store, ("image", "label"), transform=pipeline, index=None)
    loader = ps.DataLoader(data, BATCH["T1"], shuffle=True, num_workers=WORKERS, seed=0)
    return lambda: iter(loader)


if __name__ == "__main__":
    serve_s3(write, make)
