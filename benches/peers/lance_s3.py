"""Lance: its map-style dataset in its loader for worker processes, a global shuffle; it has no cache on disk."""

import lance
import pyarrow as pa
from lance.torch.data import SafeLanceDataset, get_safe_loader
from serve import BATCH, WORKERS, read_jpeg, serve_s3
from torch.utils.data import default_collate
from torch_images import train


def write(files, folder):
    content = pa.array([read_jpeg(number, file) for number, file in enumerate(files)], pa.large_binary())
    lance.write_dataset(pa.table({"image": content, "number": pa.array(range(len(files)))}), folder)


def collate(rows):
    return default_collate([(train(row["image"]), row["number"]) for row in rows])


def make(url, cache):
    loader = get_safe_loader(SafeLanceDataset(url), BATCH["T1"], WORKERS, shuffle=True, collate_fn=collate)
    return lambda: iter(loader)


if __name__ == "__main__":
    serve_s3(write, make)
