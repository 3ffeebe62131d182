"""Containers as their own libraries write and read them: ``plain_stores.py FORMAT FOLDER FILES COUNT``.

Writes the container into FOLDER if it is not there, then answers each line of standard input, ``random``, ``epoch`` or
``sequential`` and a seed, with the number of records and of bytes that it read, and the seconds of the processor that
this took; ``close 0`` closes the container. Every page of every image is touched.
The scripts are what the libraries' own documentation shows: batches of 64 where the library takes several records.
"""

import gc
import os
import pickle
import random
import struct
import sys
import time
from pathlib import Path

import numpy as np

BATCH = 64


class Lmdb:
    """Numbers as keys, pickled (bytes, label)."""

    def write(self, path, records):
        import lmdb

        with lmdb.open(str(path), map_size=1 << 40) as env, env.begin(write=True) as txn:
            for number, record in enumerate(records):
                txn.put(str(number).encode(), pickle.dumps(record))
            txn.put(b"__len__", pickle.dumps(len(records)))
            txn.put(b"__keys__", pickle.dumps([str(number).encode() for number in range(len(records))]))

    def open(self, path):
        import lmdb

        self.env = lmdb.open(str(path), readonly=True, lock=False, readahead=False, meminit=False)
        with self.env.begin() as txn:
            self.keys = pickle.loads(txn.get(b"__keys__"))

    def read(self, indices):
        with self.env.begin() as txn:
            return [pickle.loads(txn.get(self.keys[index]))[0] for index in indices]


class Hdf5:
    """Variable-length uint8 and labels."""

    def write(self, path, records):
        import h5py

        with h5py.File(path, "w") as file:
            images = file.create_dataset("image", len(records), h5py.vlen_dtype(np.uint8))
            for number, (content, _) in enumerate(records):
                images[number] = np.frombuffer(content, np.uint8)
            file["label"] = np.array([label for _, label in records], np.int64)

    def open(self, path):
        import h5py

        self.file = h5py.File(path)
        self.images = self.file["image"]

    def read(self, indices):
        return [self.images[index].data for index in indices]


class Tar:
    """WebDataset shards of 100 records; a shuffle buffer of 1,000 for an epoch."""

    sequential_only = True

    def write(self, path, records):
        import webdataset

        path.mkdir()
        with webdataset.ShardWriter(f"{path}/%06d.tar", maxcount=100, verbose=0) as sink:
            for number, (content, label) in enumerate(records):
                sink.write({"__key__": f"{number:06}", "jpg": content, "cls": str(label).encode()})

    def open(self, path):
        self.shards = sorted(map(str, path.glob("*.tar")))

    def iterate(self, shuffled):
        import webdataset

        dataset = webdataset.WebDataset(self.shards, shardshuffle=len(self.shards) if shuffled else False)
        for sample in dataset.shuffle(1000) if shuffled else dataset:
            yield sample["jpg"]


class Parquet:
    """Row groups of 100; the last row group is kept."""

    def write(self, path, records):
        import pyarrow as pa
        import pyarrow.parquet as pq

        images = [{"bytes": content, "path": None} for content, _ in records]
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        labels = pa.array([label for _, label in records])
        pq.write_table(pa.table({"image": pa.array(images, kind), "label": labels}), path, row_group_size=100)

    def open(self, path):
        import pyarrow.parquet as pq

        self.file, self.group = pq.ParquetFile(path), -1

    def read(self, indices):
        found = []
        for index in indices:
            if index // 100 != self.group:
                self.group = index // 100
                self.table = self.file.read_row_group(self.group)
            found.append(self.table["image"][index % 100].as_py()["bytes"])
        return found


class Datasets:
    """Hugging Face datasets from the Parquet file: it makes an Arrow copy of it once."""

    def write(self, path, records):
        Parquet().write(path, records)

    def open(self, path):
        import datasets

        datasets.disable_progress_bars()
        cache = str(path.parent / "cache")
        loaded = datasets.Dataset.from_parquet(str(path), cache_dir=cache)
        self.dataset = loaded.cast_column("image", datasets.Image(decode=False))

    def read(self, indices):
        return [image["bytes"] for image in self.dataset[[int(index) for index in indices]]["image"]]


class Arrow:
    """Hugging Face save_to_disk."""

    def write(self, path, records):
        import datasets

        features = datasets.Features({"image": datasets.Image(decode=False), "label": datasets.Value("int64")})
        entries = {
            "image": [{"bytes": content, "path": None} for content, _ in records],
            "label": [label for _, label in records],
        }
        datasets.Dataset.from_dict(entries, features=features).save_to_disk(str(path))

    def open(self, path):
        import datasets

        self.dataset = datasets.load_from_disk(str(path))

    read = Datasets.read


class Lance:
    """take() of row numbers; both columns, as a record has them."""

    def write(self, path, records):
        import lance
        import pyarrow as pa

        images = pa.array([content for content, _ in records], pa.binary())
        lance.write_dataset(pa.table({"image": images, "label": [label for _, label in records]}), str(path))

    def open(self, path):
        import lance

        self.dataset = lance.dataset(str(path))

    def read(self, indices):
        table = self.dataset.take(list(map(int, indices)), columns=["image", "label"])
        table["label"].to_pylist()
        return table["image"].to_pylist()


class Tfrecord:
    """The tfrecord package; a shuffle buffer of 1,000 for an epoch."""

    sequential_only = True

    def write(self, path, records):
        from tfrecord.writer import TFRecordWriter

        writer = TFRecordWriter(str(path))
        for content, label in records:
            writer.write({"image/encoded": (content, "byte"), "image/class/label": (label, "int")})
        writer.close()

    def open(self, path):
        self.path = str(path)

    def iterate(self, shuffled):
        from tfrecord.iterator_utils import shuffle_iterator
        from tfrecord.reader import tfrecord_loader

        loader = tfrecord_loader(self.path, None, {"image/encoded": "byte", "image/class/label": "int"})
        for sample in shuffle_iterator(loader, 1000) if shuffled else loader:
            yield bytes(sample["image/encoded"])


class Mds:
    """MosaicML Streaming, local."""

    def write(self, path, records):
        from streaming import MDSWriter

        with MDSWriter(out=str(path), columns={"image": "bytes", "label": "int"}) as writer:
            for content, label in records:
                writer.write({"image": content, "label": label})

    def open(self, path):
        import streaming

        streaming.base.util.clean_stale_shared_memory()
        self.dataset = streaming.StreamingDataset(local=str(path), shuffle=False, batch_size=BATCH)

    def read(self, indices):
        return [self.dataset[int(index)]["image"] for index in indices]


class Litdata:
    """LitData, local."""

    def write(self, path, records):
        from litdata.streaming.writer import BinaryWriter

        path.mkdir()
        writer = BinaryWriter(str(path), chunk_bytes=1 << 26)
        for number, (content, label) in enumerate(records):
            writer.add_item(number, {"image": content, "label": label})
        writer.done()
        writer.merge()

    def open(self, path):
        import litdata

        self.dataset = litdata.StreamingDataset(str(path), shuffle=False)

    def read(self, indices):
        return [self.dataset[int(index)]["image"] for index in indices]


class Ffcv:
    """The files as they are in an RGB field; its reader and memory manager, compiled, as its decoders read."""

    def write(self, path, records):
        from ffcv.fields import IntField, RGBImageField
        from ffcv.writer import DatasetWriter

        def encode(_field, destination, content, malloc):
            destination["mode"], destination["width"], destination["height"] = 0, 1, 1  # a JPEG; not decoded
            destination["data_ptr"], memory = malloc(len(content))
            memory[:] = np.frombuffer(content, np.uint8)

        RGBImageField.encode = encode  # its own would decode and encode again; a subclass has no number in the file
        fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
        DatasetWriter(str(path), fields, num_workers=1).from_indexed_dataset(records)

    def open(self, path):
        from ffcv.fields import RGBImageField
        from ffcv.memory_managers import OSCacheManager
        from ffcv.reader import Reader

        reader = Reader(str(path), {"image": RGBImageField})
        manager = OSCacheManager(reader)
        self.addresses = reader.metadata["f0"]["data_ptr"]
        self.context = manager.schedule_epoch(None)
        self.context.__enter__()  # opened until the process ends
        self.read_memory, self.state = manager.compile_reader(), self.context.state

    def read(self, indices):
        return [self.read_memory(self.addresses[index], self.state) for index in indices]


class Mongo:
    """Documents by number, batches by $in; the address of the server is in MONGODB."""

    def write(self, path, records):
        import bson
        import pymongo

        with pymongo.MongoClient(os.environ["MONGODB"]) as client:
            collection = client["bench"][path.parent.name]
            collection.drop()
            for first in range(0, len(records), 100):
                some = enumerate(records[first : first + 100], first)
                collection.insert_many(
                    [
                        {"_id": number, "image": bson.Binary(content), "label": label}
                        for number, (content, label) in some
                    ]
                )

    def open(self, path):
        import pymongo

        self.collection = pymongo.MongoClient(os.environ["MONGODB"])["bench"][path.parent.name]

    def read(self, indices):
        wanted = [int(index) for index in indices]
        found = {entry["_id"]: entry["image"] for entry in self.collection.find({"_id": {"$in": wanted}}, {"image": 1})}
        return [found[index] for index in wanted]


class Recordio:
    """A script over the index file, as MXIndexedRecordIO reads it."""

    def write(self, path, records):
        index = []
        with path.open("wb") as file:
            for number, (content, label) in enumerate(records):
                index.append(f"{number}\t{file.tell()}\n")
                body = struct.pack("<IfQQ", 0, label, number, 0) + content
                file.write(struct.pack("<II", 0xCED7230A, len(body)) + body + bytes(-len(body) % 4))
        path.with_suffix(".idx").write_text("".join(index))

    def open(self, path):
        self.file = path.open("rb")
        self.offsets = [int(line.split("\t")[1]) for line in path.with_suffix(".idx").read_text().splitlines()]

    def read(self, indices):
        found = []
        for index in indices:
            self.file.seek(self.offsets[index])
            _, nbytes = struct.unpack("<II", self.file.read(8))
            found.append(self.file.read(nbytes)[24:])
        return found


FORMATS = {
    "lmdb": (Lmdb, "set.lmdb"),
    "hdf5": (Hdf5, "set.h5"),
    "tar": (Tar, "set-tar"),
    "recordio": (Recordio, "set.rec"),
    "parquet": (Parquet, "set.parquet"),
    "datasets": (Datasets, "hf.parquet"),
    "dataset": (Datasets, "hf.parquet"),
    "arrow": (Arrow, "set-arrow"),
    "lance": (Lance, "set.lance"),
    "tfrecord": (Tfrecord, "set.tfrecord"),
    "mds": (Mds, "set-mds"),
    "litdata": (Litdata, "set-litdata"),
    "ffcv": (Ffcv, "set.beton"),
    "mongodb": (Mongo, "set-mongodb"),
}


def touch(contents):
    """Number and bytes of some images; every page of each is read."""
    records = nbytes = 0
    for content in contents:
        view = np.frombuffer(content, np.uint8)
        int(view[::4096].sum())
        records, nbytes = records + 1, nbytes + len(view)
    return records, nbytes


def run(store, how, count, seed):
    """One epoch."""
    if getattr(store, "sequential_only", False):
        return touch(store.iterate(how != "sequential"))
    order = list(range(count))
    if how != "sequential":
        random.Random(seed).shuffle(order)
    step = 1 if how == "random" else BATCH
    records = nbytes = 0
    for first in range(0, count, step):
        one, two = touch(store.read(order[first : first + step]))
        records, nbytes = records + one, nbytes + two
    return records, nbytes


def main():
    name, folder, files, count = sys.argv[1:5]
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to standard error
    kind, file_name = FORMATS[name]
    path, store = Path(folder) / file_name, kind()
    if not path.exists():
        paths = sorted(Path(files).rglob("*.jpg"))
        contents = [each.read_bytes() for each in paths]
        store.write(path, [(contents[number % len(paths)], number % 1000) for number in range(int(count))])
        if name == "mongodb":
            path.touch()
    reply.write("ready\n")
    reply.flush()
    opened = False
    for line in sys.stdin:
        how, seed = line.split()
        records = nbytes = 0
        begun = time.process_time()
        if how == "close":
            store, opened = None, False
            gc.collect()  # maps of files end with their objects
        else:
            if not opened:
                store = kind()
                store.open(path)
                opened = True
            records, nbytes = run(store, how, int(count), int(seed))
        reply.write(f"{records} {nbytes} {time.process_time() - begun}\n")
        reply.flush()
    os._exit(0)  # some libraries hang in their exit handlers


if __name__ == "__main__":
    main()
