"""How a store of each kind is made for the suite: by its own library where there is one, else by our writer."""

from __future__ import annotations

import io
import json
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import penstock as ps
from penstock.sample import Field, Schema
from penstock.stores import STORES
from penstock.stores.base import Store
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.testing import KEYS, StoreMaker, read_photos
from tests.conformance import lmdb_layouts
from tests.servers.mongo_server import get_server
from tests.stores import written


@dataclass(frozen=True)
class Maker(StoreMaker):
    """How a store of a kind of penstock is made, and which package it needs."""

    needs: str = ""
    """The module without which the kind cannot be read or written here; its tests are then skipped."""
    extra: str = ""
    """The extra of the distribution that installs what reading the kind needs; empty: nothing but penstock."""


def make_files(folder: Path) -> str:
    """The pictures as they are."""
    return str(folder / "photos")


def make_lmdb(folder: Path) -> str:
    """The pictures, packed."""
    ps.pack(folder / "photos", folder / "photos.lmdb", overwrite=True)
    return str(folder / "photos.lmdb")


def make_coefficients(folder: Path) -> str:
    """The pictures, of which those that are JPEGs are packed as coefficients."""
    path = folder / "coefficients.lmdb"
    ps.pack(folder / "photos", path, overwrite=True, transcode="coefficients")
    return str(path)


def make_sharded(folder: Path) -> str:
    """The pictures, packed in shards of two or three."""
    ps.pack(folder / "photos", folder / "sharded.lmdb", overwrite=True, shard_size=1000)
    return str(folder / "sharded.lmdb")


def many_sharded(folder: Path, count: int) -> str:
    """Many small records in some twenty shards."""
    return write_many("sharded", folder / "many", count, shard_size=3 * count)


def many_files(folder: Path, count: int) -> str:
    """Many small files in a thousand class folders."""
    for number in range(1000):
        (folder / "many" / f"{number:03}").mkdir(parents=True)
    for number in range(count):
        (folder / "many" / f"{number % 1000:03}" / f"{number}.jpg").write_bytes(b"\xff\xd8%d" % number)
    return str(folder / "many")


def write_many(kind: str, path: Path, count: int, nbytes: int = 0, **options: Any) -> str:
    """Many records of an image of at least ``nbytes`` and a label, written by the writer of a kind of stores."""
    store: type[Store] = STORES.get(kind)
    schema = store.storable(Schema({"image": Field("image"), "label": Field("label")}))
    writer = store.writer(store.locate(path), schema, "many", **options)
    for number in range(count):
        fields = {"image": (b"\xff\xd8\xff%d" % number).ljust(nbytes, b"."), "label": number % 1000}
        writer.append(writer.prepare(f"{number:06}.jpg", fields))
    writer.finish()
    writer.close()
    return str(path)


def make_recordio(folder: Path) -> str:
    """The pictures in a RecordIO file with an index."""
    photos = enumerate(read_photos(folder))
    payloads = (written.recordio_image(content, label, number) for number, (_, content, label) in photos)
    return str(written.write_recordio(folder / "photos.rec", payloads))


def make_hdf5(folder: Path) -> str:
    """The pictures, packed into HDF5."""
    ps.pack(folder / "photos", folder / "photos.h5", overwrite=True)
    return str(folder / "photos.h5")


def make_tar(folder: Path) -> str:
    """The pictures in a tar file as webdataset reads it, written by us."""
    ps.pack(folder / "photos", folder / "photos.tar", overwrite=True)
    return str(folder / "photos.tar")


def name_collection(folder: Path, kind: str) -> str:
    """The URL of a collection of the test server, another one for each folder."""
    return f"{kind}://{get_server().host}/conformance/c{zlib.crc32(os.fsencode(folder)):08x}"


def make_on_server(folder: Path, kind: str) -> str:
    """The pictures in a collection or a bucket of the test server."""
    import gridfs
    import pymongo

    url = name_collection(folder, kind)
    name = url.rpartition("/")[2]
    client: Any = pymongo.MongoClient(get_server().host)
    with client:
        database = client["conformance"]
        for each in (name, f"{name}.files", f"{name}.chunks"):
            database.drop_collection(each)
        bucket = gridfs.GridFSBucket(database, name)
        for key, content, label in read_photos(folder):
            fields = {"label": ("cats", "dogs")[label]}
            identifier = KEYS.index(key) << 32 | zlib.crc32(content)  # in order; new with the picture
            if kind == "gridfs":
                bucket.upload_from_stream_with_id(identifier, key, content, metadata=fields)
            else:
                database[name].insert_one({"_id": identifier, "key": key, "image": content, **fields})
    return url


def maker_on_server(kind: str) -> Maker:
    """How a store on the test server is made."""
    return Maker(
        lambda folder: make_on_server(folder, kind),
        needs="pymongo",
        extra="mongo",
        missing=lambda folder: name_collection(folder / "nothing", kind),
    )


def make_tfrecord(folder: Path) -> str:
    """The pictures as `tf.train.Example`."""
    records = [
        written.example({"image/encoded": [content], "image/class/label": [label], "image/filename": [key.encode()]})
        for key, content, label in read_photos(folder)
    ]
    return str(written.write_tfrecord(folder / "photos.tfrecord", records))


def make_mds(folder: Path) -> str:
    """The pictures in shards of MosaicML Streaming."""
    samples = [
        {"filename": key.encode(), "image": content, "label": label.to_bytes(8, "little")}
        for key, content, label in read_photos(folder)
    ]
    columns = {"filename": ("str", None), "image": ("jpeg", None), "label": ("int", 8)}
    return str(written.write_mds(folder / "mds", columns, samples, per_shard=2))


def make_litdata(folder: Path) -> str:
    """The pictures in chunks of LitData."""
    samples = [(content, label.to_bytes(8, "little"), key.encode()) for key, content, label in read_photos(folder)]
    spec, formats = written.dict_spec(["image", "label", "key"]), ("jpeg", "int", "str")
    return str(written.write_litdata(folder / "litdata", spec, formats, samples, per_chunk=2))


def make_beton(folder: Path) -> str:
    """The pictures in a file of FFCV."""
    samples = [{"image": content, "label": label} for _, content, label in read_photos(folder)]
    fields = {"image": (written.IMAGE, b""), "label": (written.INT, b"")}
    return str(written.write_beton(folder / "photos.beton", fields, samples))


def make_parquet(folder: Path) -> str:
    """The pictures, packed as a Parquet file."""
    ps.pack(folder / "photos", folder / "photos.parquet", overwrite=True)
    return str(folder / "photos.parquet")


def make_arrow_table(folder: Path) -> Any:
    """The pictures in the layout of Hugging Face."""
    import pyarrow as pa

    photos = read_photos(folder)
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cats", "dogs"]}}
    images = pa.array(
        [{"bytes": content, "path": key} for key, content, _ in photos],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table({"image": images, "label": [label for _, _, label in photos]}, metadata=metadata)


def make_arrow(folder: Path) -> str:
    """The pictures in a stream of record batches, as in the cache of ``datasets``."""
    from pyarrow import ipc

    table = make_arrow_table(folder)
    partial = folder / "photos.new"
    with ipc.new_stream(partial, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    partial.replace(folder / "photos.arrow")
    return str(folder / "photos.arrow")


def make_lance(folder: Path) -> str:
    """The pictures in a Lance dataset."""
    import lance

    shutil.rmtree(folder / "photos.lance", ignore_errors=True)
    lance.write_dataset(make_arrow_table(folder), folder / "photos.lance")
    return str(folder / "photos.lance")


def write_litdata_rows(folder: Path, table: Any) -> str:
    """A folder as LitData writes dicts of bytes and numbers: rows of an Arrow file at the end of a chunk."""
    from pyarrow import ipc

    folder.mkdir(exist_ok=True)
    count = len(table)
    head = np.array([count, *[4 * (count + 2)] * (count + 1)], "<u4").tobytes()
    file = io.BytesIO()
    with ipc.new_file(file, table.schema) as rows:
        rows.write_table(table, max_chunksize=256)
    content = file.getvalue()
    partial = folder / "chunk.new"
    partial.write_bytes(head + content + len(content).to_bytes(4, "little") + b"LDARW01\0")
    partial.replace(folder / "chunk-0-0.bin")
    chunk = {"chunk_bytes": len(head) + len(content) + 12, "chunk_size": count, "filename": "chunk-0-0.bin"}
    config = {"data_format": ["bytes", "int"], "compression": None, "item_loader": "PyTreeLoader"}
    (folder / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))
    return str(folder)


def make_litdata_rows(folder: Path) -> str:
    """The pictures as rows of LitData."""
    import pyarrow as pa

    photos = read_photos(folder)
    columns = {"image": [content for _, content, _ in photos], "label": [label for _, _, label in photos]}
    return write_litdata_rows(folder / "rows", pa.table(columns))


def many_arrow(folder: Path, count: int) -> str:
    """Many small records in record batches of a thousand."""
    from pyarrow import ipc

    table = make_small_table(count)
    with ipc.new_stream(folder / "many.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=1000)
    return str(folder / "many.arrow")


def many_lance(folder: Path, count: int) -> str:
    """Many small records in a Lance dataset."""
    import lance

    lance.write_dataset(make_small_table(count), folder / "many.lance")
    return str(folder / "many.lance")


def make_small_table(count: int) -> Any:
    """A table of small images and labels."""
    import pyarrow as pa

    images = pa.array([b"\xff\xd8\xff%d" % number for number in range(count)], pa.binary())
    return pa.table({"image": images, "label": [number % 1000 for number in range(count)]})


def many_of(kind: str, suffix: str) -> Callable[[Path, int], str]:
    """The function that writes many records with the writer of a kind."""
    return lambda folder, count: write_many(kind, folder / f"many{suffix}", count)


def many_written(kind: str) -> Callable[[Path, int], str]:
    """The function that writes many records of a kind that only other programs write."""
    return lambda folder, count: str(written.write_many(kind, folder, count))


def crop_decoded(encoded: bytes) -> np.ndarray[Any, Any]:
    """The part of a picture that all of them have: 8 x 9 pixels."""
    return ps.decode(encoded)[:8, :9]


def write_pixels(
    folder: Path, name: str, pixels: str, decode: Callable[[bytes], np.ndarray[Any, Any]], keys: Sequence[str] | None
) -> str:
    """The pictures as pixels, packed under some keys, or under their numbers."""
    schema = Schema({"image": Field(pixels), "label": Field("label", ("cats", "dogs"))})
    writer = LmdbWriter(folder / name, schema, "source", overwrite=True)
    for number, (key, encoded, label) in enumerate(read_photos(folder)):
        fields = {"image": decode(encoded), "label": label}
        writer.append(writer.prepare(str(number) if keys is None else key, fields))
    writer.finish()
    return str(folder / name)


def make_pixels(folder: Path) -> str:
    """The pictures as pixels of many sizes: each is an entry of its own."""
    return write_pixels(folder, "pixels.lmdb", "pixels:uint8[*,*,3]", ps.decode, KEYS)


def make_patches(folder: Path) -> str:
    """The pictures as pixels of one size, in a block."""
    return write_pixels(folder, "patches.lmdb", "pixels:uint8[8,9,3]", crop_decoded, KEYS)


def make_numbered_patches(folder: Path) -> str:
    """The same, without keys."""
    return write_pixels(folder, "numbered.lmdb", "pixels:uint8[8,9,3]", crop_decoded, None)


TAR_KEYS: Final = ("cats/2", "cats/10", "dogs/1", "dogs/2", "dogs/3")

MAKERS: Final[dict[str, Maker]] = {
    "files": Maker(make_files, many=many_files),
    "sharded": Maker(make_sharded, checks=True, many=many_sharded),
    "lmdb": Maker(make_lmdb, checks=True, many=many_of("lmdb", ".lmdb")),
    # A kind that stores records in several ways has a maker for each: its name, a comma, and the way.
    "lmdb, coefficients": Maker(make_coefficients, checks=True),
    "lmdb, pixels": Maker(make_pixels, checks=True, decoded=ps.decode),
    "lmdb, patches": Maker(make_patches, checks=True, decoded=crop_decoded),
    "lmdb, numbered patches": Maker(make_numbered_patches, checks=True, decoded=crop_decoded, keys=None),
    "lmdb-pickle-index": Maker(
        lmdb_layouts.make_pickle_index, keys=None, classes=(), many=lmdb_layouts.make_many_pickles
    ),
    "lmdb-pairs": Maker(lmdb_layouts.make_pairs, lmdb_layouts.PAIRS, keys=None, classes=(), decoded=lmdb_layouts.crop),
    "lmdb-names": Maker(lmdb_layouts.make_names, lmdb_layouts.NAMES, keys=lmdb_layouts.NAME_KEYS, classes=()),
    "lmdb-words": Maker(lmdb_layouts.make_words, lmdb_layouts.WORDS, keys=lmdb_layouts.WORD_KEYS),
    "lmdb-datum": Maker(lmdb_layouts.make_datum, keys=lmdb_layouts.NAME_KEYS, classes=()),
    "recordio": Maker(make_recordio, keys=None, classes=(), many=many_written("recordio")),
    "hdf5": Maker(make_hdf5, needs="h5py", extra="hdf5", many=many_of("hdf5", ".h5")),
    "tar": Maker(make_tar, keys=TAR_KEYS, many=many_of("tar", ".tar")),
    "tfrecord": Maker(make_tfrecord, classes=(), checks=True, many=many_written("tfrecord")),
    "mds": Maker(make_mds, classes=(), many=many_written("mds")),
    "litdata-arrow": Maker(
        make_litdata_rows,
        keys=None,
        classes=(),
        needs="pyarrow",
        extra="parquet",
        many=lambda folder, count: write_litdata_rows(folder / "rows", make_small_table(count)),
    ),
    "litdata": Maker(make_litdata, classes=(), many=many_written("litdata")),
    "beton": Maker(make_beton, keys=None, classes=(), many=many_written("beton")),
    "parquet": Maker(make_parquet, needs="pyarrow", extra="parquet", many=many_of("parquet", ".parquet")),
    "arrow": Maker(make_arrow, needs="pyarrow", extra="parquet", many=many_arrow),
    "lance": Maker(
        make_lance,
        needs="lance",
        extra="lance",
        many=many_lance,
        may_crash="pylance 14 aborts the process on some damaged manifests",
        survives_fork=False,
    ),
    "mongodb": maker_on_server("mongodb"),
    "gridfs": maker_on_server("gridfs"),
}
