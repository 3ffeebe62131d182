"""LitData: chunks by ``optimize``, ``StreamingDataset`` in its own loader; chunks and windows in them are shuffled."""

from litdata import StreamingDataLoader, StreamingDataset, optimize
from litdata.streaming import downloader
from serve import BATCH, SHARD_NBYTES, WORKERS, read_jpeg, serve_s3
from torch_images import train

downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"  # noqa: SLF001  # no setting allows http://


def read(numbered):
    return {"image": read_jpeg(*numbered), "number": numbered[0]}


def write(files, folder):
    optimize(
        read,
        list(enumerate(files)),
        folder,
        chunk_bytes=SHARD_NBYTES,
        num_workers=1,
        start_method="fork",  # it sets that of the program: with "spawn", the loader's workers would import torch again
        reorder_files=False,
        keep_data_ordered=True,
    )


def transform(sample):
    return train(sample["image"]), sample["number"]


def make(url, cache):
    data = StreamingDataset(url, cache, shuffle=True, drop_last=False, transform=transform)
    loader = StreamingDataLoader(data, batch_size=BATCH["T1"], num_workers=WORKERS, persistent_workers=True)
    return lambda: iter(loader)


if __name__ == "__main__":
    serve_s3(write, make)
