"""MosaicML Streaming: MDS shards, ``StreamingDataset`` with its default shuffle (py1e), its cache without a limit."""

from serve import BATCH, SHARD_NBYTES, WORKERS, read_jpeg, serve_s3
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from torch_images import train


def write(files, folder):
    with MDSWriter(out=folder, columns={"image": "bytes", "number": "int"}, size_limit=SHARD_NBYTES) as out:
        for number, file in enumerate(files):
            out.write({"image": read_jpeg(number, file), "number": number})


class Photos(StreamingDataset):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return train(sample["image"]), sample["number"]


def make(url, cache):
    batch = BATCH["T1"]
    data = Photos(remote=url, local=cache, shuffle=True, batch_size=batch)
    for stream in data.streams:  # else both workers inherit one connection, and read one another's answers
        stream._downloader.clean_up()  # noqa: SLF001
    loader = StreamingDataLoader(data, batch_size=batch, num_workers=WORKERS, persistent_workers=True)
    return lambda: iter(loader)


if __name__ == "__main__":
    serve_s3(write, make)
