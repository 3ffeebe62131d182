"""WebDataset: tar shards in random order, a shuffle buffer of 1,000, and its cache of files.

The shards are fetched by its own ``curl`` at signed URLs: ``aws s3 cp``, of which its documentation writes too, starts
Python for each.
"""

from pathlib import Path
from urllib.parse import urlparse

import boto3
import webdataset
from serve import BATCH, SHARD_NBYTES, WORKERS, read_jpeg, serve_s3
from torch_images import train


def write(files, folder):
    Path(folder).mkdir(parents=True)
    with webdataset.ShardWriter(f"{folder}/%06d.tar", maxsize=SHARD_NBYTES, verbose=0) as sink:
        for number, file in enumerate(files):
            sink.write({"__key__": f"{number:06}", "jpg": read_jpeg(number, file), "cls": number})


def make(url, cache):
    client, place = boto3.client("s3"), urlparse(url)
    bucket, prefix = place.netloc, place.path.lstrip("/")
    shards = [each["Key"] for each in client.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]]
    urls = [client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}) for key in shards]
    data = webdataset.WebDataset(urls, shardshuffle=len(urls), cache_dir=cache).shuffle(1000)
    data = data.to_tuple("jpg", "cls").map_tuple(train, int).batched(BATCH["T1"])
    loader = webdataset.WebLoader(data, batch_size=None, num_workers=WORKERS, persistent_workers=True)
    return lambda: iter(loader)


if __name__ == "__main__":
    serve_s3(write, make)
