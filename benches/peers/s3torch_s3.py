"""torch's DataLoader over ``s3torchconnector``: an object for each JPEG, a global shuffle; it has no cache."""

import os
from pathlib import Path

from s3torchconnector import S3ClientConfig, S3MapDataset
from serve import BATCH, WORKERS, read_jpeg, serve_s3
from torch.utils.data import DataLoader
from torch_images import train


def write(files, folder):
    Path(folder).mkdir(parents=True)
    for number, file in enumerate(files):
        Path(f"{folder}/{number:06}.jpg").write_bytes(read_jpeg(number, file))


def transform(reader):
    return train(reader.read()), int(Path(reader.key).stem)


def make(url, cache):
    region, endpoint = os.environ["AWS_REGION"], os.environ["AWS_ENDPOINT_URL"]
    options = {"region": region, "endpoint": endpoint, "s3client_config": S3ClientConfig(force_path_style=True)}
    data = S3MapDataset.from_prefix(f"{url}/", transform=transform, **options)
    loader = DataLoader(data, BATCH["T1"], shuffle=True, num_workers=WORKERS, persistent_workers=True)
    return lambda: iter(loader)


if __name__ == "__main__":
    serve_s3(write, make)
