"""MDS folders: encodings, names, compression, hashes, parts, damage, any bytes."""

from __future__ import annotations

import contextlib
import json
import pickle
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import (
    ArgumentError,
    CorruptRecordError,
    OptionalPackageError,
    PenstockError,
    StoreError,
    StoreFormatError,
)
from penstock.stores.foreign_shards.mds import MdsStore
from tests.stores.written import pil, write_anew, write_many, write_mds

JPEG = b"\xff\xd8\xff" + bytes(30)
COLUMNS = {"image": ("jpeg", None), "label": ("int", 8)}


def sample(index: int) -> dict[str, bytes]:
    """An encoded picture with its number."""
    return {"image": JPEG + b"%d" % index, "label": struct.pack("<q", index)}


def write_set(folder: Path, count: int = 7, **options: Any) -> Path:
    """A folder of samples, three in a shard."""
    return write_mds(folder, COLUMNS, [sample(i) for i in range(count)], per_shard=3, **options)


def open_one(folder: Path, encoding: str, nbytes: int | None, content: bytes) -> tuple[str, Any]:
    """Kind and value of a column in a store of one record."""
    write_mds(folder, {"value": (encoding, nbytes)}, [{"value": content}])
    with ps.open(folder) as store:
        name = next(iter(store.schema.fields))
        return store.schema[name].kind, store[0].fields[name]


@pytest.mark.parametrize(
    ("encoding", "nbytes", "content", "kind", "value"),
    [
        ("str", None, "größe".encode(), "text", "größe"),
        ("int", 8, struct.pack("<q", -5), "int", -5),
        ("uint8", 1, b"\xff", "int", 255),
        ("int16", 2, struct.pack("<h", -300), "int", -300),
        ("uint64", 8, struct.pack("<Q", 2**64 - 1), "int", 2**64 - 1),
        ("float16", 2, struct.pack("<e", 0.5), "float", 0.5),
        ("float64", 8, struct.pack("<d", 1e300), "float", 1e300),
        ("str_int", None, b"-12345678901234567890", "int", -12345678901234567890),
        ("str_float", None, b"0.25", "float", 0.25),
        ("str_decimal", None, b"3.14159265358979323846", "text", "3.14159265358979323846"),
        ("json", None, b'{"a": [1, null]}', "json", {"a": [1, None]}),
        ("bytes", None, b"any bytes", "bytes", b"any bytes"),
        ("bytes", None, JPEG, "image", JPEG),
        ("png", None, b"whatever", "image", b"whatever"),
        ("jpeg:90", None, JPEG, "image", JPEG),
    ],
)
def test_values_are_those_that_were_encoded(
    tmp_path: Path, encoding: str, nbytes: int | None, content: bytes, kind: str, value: object
) -> None:
    """Each encoding gives its value, and the kind of the field."""
    found = open_one(tmp_path / "set", encoding, nbytes, content)

    assert found[0] == kind
    assert (bytes(found[1]) if isinstance(found[1], memoryview) else found[1]) == value


@pytest.mark.parametrize(
    ("encoding", "nbytes", "head", "kind"),
    [
        ("ndarray:float32:2,3", 24, b"", "float32[2,3]"),
        ("ndarray:float32", None, b"\x08\x02\x03", "float32[*,*]"),
        ("ndarray", None, b"\x22\x09\x02\0\x03\0", "float32[*,*]"),
    ],
)
def test_arrays_have_static_or_stored_shapes(
    tmp_path: Path, encoding: str, nbytes: int | None, head: bytes, kind: str
) -> None:
    """Dtype and shape are those of the encoding, or of the value."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)

    found = open_one(tmp_path / "set", encoding, nbytes, head + array.tobytes())

    assert found[0] == kind
    np.testing.assert_array_equal(found[1], array)
    assert found[1].flags.aligned
    assert not found[1].flags.writeable


@pytest.mark.parametrize(
    ("modes", "kind"),
    [
        (["RGB", "RGB"], "pixels:uint8[*,*,3]"),
        (["L", "L"], "pixels:uint8[*,*,1]"),
        (["L", "RGBA"], "pixels:uint8[*,*,3]"),
    ],
)
def test_images_of_pillow_are_pixels(tmp_path: Path, modes: list[str], kind: str) -> None:
    """Modes of several channels are RGB; gray images stay gray unless others have colours."""
    channels = [{"RGB": 3, "L": 1, "RGBA": 4}[mode] for mode in modes]
    arrays = [np.random.default_rng(i).integers(0, 256, (2, 4, c), np.uint8) for i, c in enumerate(channels)]
    samples = [{"pic": pil(4, 2, mode, array.tobytes())} for mode, array in zip(modes, arrays, strict=True)]
    write_mds(tmp_path / "set", {"pic": ("pil", None)}, samples)

    with ps.open(tmp_path / "set") as store:
        assert store.schema["image"].kind == kind
        for record, array in zip(store, arrays, strict=True):
            expected = array[:, :, :3] if kind.endswith("1]") or array.shape[2] > 1 else np.repeat(array, 3, axis=2)
            np.testing.assert_array_equal(record.fields["image"], expected)
            assert not record.fields["image"].flags.writeable


def test_a_column_of_pickles_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A pickle is named, and never loaded; without it, the rest is read."""
    columns = {**COLUMNS, "meta": ("pkl", None)}
    write_mds(tmp_path / "set", columns, [{**sample(1), "meta": pickle.dumps(1)}])

    with pytest.raises(ArgumentError, match=r"'meta'.*pickles.*fields=\['image', 'label'\]"):
        ps.open(tmp_path / "set")
    with ps.open(tmp_path / "set", fields=["image", "label"]) as store:
        assert store[0].fields["label"] == 1


def test_names_of_columns_say_what_they_are(tmp_path: Path) -> None:
    """The only image, a usual name of labels and of keys are found; others are stated."""
    columns = {"caption": ("str", None), "jpg": ("jpeg", None), "name": ("str", None), "y": ("int32", 4)}
    values = {"caption": b"a cat", "jpg": JPEG, "name": b"cat.jpg", "y": struct.pack("<i", 3)}
    write_mds(tmp_path / "set", columns, [values])

    with ps.open(tmp_path / "set") as store:
        assert list(store.schema.fields) == ["caption", "image", "name", "label"]
        assert store.schema["label"].kind == "label"
        assert store[0].key == store.keys()[0] == "cat.jpg"
        assert "name" in store.description
    with ps.open(tmp_path / "set", key="caption", fields=["jpg"]) as store:
        assert list(store.schema.fields) == ["caption", "image"]
        assert store[0].key == "a cat"
    with ps.open(tmp_path / "set", fields={"picture": "jpg", "label": "caption"}, key="name") as store:
        assert [*store[0].fields] == [*store.schema.fields] == ["picture", "label"]
        assert (store[0].key, store[0].fields["label"]) == (store.keys()[0], "a cat")
    with pytest.raises(ArgumentError, match="image must hold images"):
        ps.open(tmp_path / "set", image="y")
    with pytest.raises(ArgumentError, match="fields must be a sequence"):
        ps.open(tmp_path / "set", fields="jpg")


@pytest.mark.parametrize("compression", ["gz", "zstd:7", "snappy"])
def test_compressed_shards_are_decompressed_when_they_are_read(tmp_path: Path, compression: str) -> None:
    """Opening decompresses at most what it looks at; reading gives the records; the files are used again."""
    folder = write_set(tmp_path / "set", compression=compression)

    with ps.open(folder) as store:
        assert [bytes(record.fields["image"]) for record in store] == [sample(i)["image"] for i in range(7)]
        assert "compressed" in store.description
    assert len(list(folder.glob(".shard*.decompressed"))) == 3
    with pickle.loads(pickle.dumps(ps.open(folder))) as store:
        assert store[6].fields["label"] == 6


def test_copies_lie_in_the_folder_that_is_stated(tmp_path: Path) -> None:
    """With cache=, nothing is written beside the shards; with cache_nbytes=, too many bytes are refused."""
    folder, cache = write_set(tmp_path / "set", compression="gz"), tmp_path / "cache"
    before = set(folder.iterdir())

    with ps.open(folder, cache=cache) as store:
        assert [bytes(record.fields["image"]) for record in store] == [sample(i)["image"] for i in range(7)]
        with pickle.loads(pickle.dumps(store)) as again:
            assert again[0].fields["label"] == store[0].fields["label"]
    assert set(folder.iterdir()) == before
    assert len(list(cache.iterdir())) == 3
    with ps.open(folder, cache=tmp_path / "other", cache_nbytes=10) as store, pytest.raises(StoreError, match="cache_"):
        store.read([0])


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zstandard needs a package of an extra; gzip does not."""
    zstd = write_set(tmp_path / "zstd", compression="zstd")
    plain = write_set(tmp_path / "gz", compression="gz")
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with ps.open(zstd) as store, pytest.raises(OptionalPackageError, match=r"penstock-data\[parquet\]"):
        store.read([0])
    with ps.open(plain) as store:
        assert store[0].fields["label"] == 0


def test_a_shard_that_declares_too_much_is_refused(tmp_path: Path) -> None:
    """A few bytes that are said to be a terabyte are not decompressed."""
    folder = write_set(tmp_path / "set", compression="zstd", edit=lambda i: set_nbytes(i, (1 << 40) - 1))

    with ps.open(folder) as store, pytest.raises(CorruptRecordError, match="cannot decompress to"):
        store.read([0])
    assert list(folder.glob(".shard*")) == []


def set_nbytes(index: dict[str, Any], nbytes: int) -> None:
    """Change the size of the first shard."""
    index["shards"][0]["raw_data"]["bytes"] = nbytes


def test_a_compressed_shard_that_is_damaged_is_refused(tmp_path: Path) -> None:
    """More bytes than the index states, and damaged ones, are errors of the records of that shard."""
    folder = write_set(tmp_path / "set", compression="gz")
    path = folder / "shard.00001.mds.gz"
    path.write_bytes(path.read_bytes()[:-20])

    with ps.open(folder) as store:
        assert store[0].fields["label"] == 0
        with pytest.raises(CorruptRecordError, match=r"shard\.00001"):
            store.read([3])


def test_hashes_of_the_index_are_verified(tmp_path: Path) -> None:
    """`check` compares the shards with their hashes, and reads all records."""
    folder = write_set(tmp_path / "set", hashes=["md5", "sha1"])
    location = MdsStore.locate(folder)
    assert list(MdsStore.check(location)) == []
    content = bytearray((folder / "shard.00001.mds").read_bytes())
    content[-12] ^= 1
    write_anew(folder / "shard.00001.mds", bytes(content))

    reasons = [problem.reason for problem in MdsStore.check(location)]

    assert len(reasons) == 2
    assert all("shard.00001.mds is damaged" in reason for reason in reasons)


def test_a_set_in_parts_is_asked_for_one(tmp_path: Path) -> None:
    """A folder of parts names them; each opens."""
    write_set(tmp_path / "set" / "train")
    write_set(tmp_path / "set" / "val", 2)

    with pytest.raises(ArgumentError, match="parts train, val"):
        ps.open(tmp_path / "set")
    with ps.open(tmp_path / "set" / "val") as store:
        assert len(store) == 2


def test_files_outside_the_folder_are_refused(tmp_path: Path) -> None:
    """An index that names a file elsewhere is not followed."""
    for name in ("../secret", "/etc/passwd", "a/../../b"):
        folder = write_set(tmp_path / "set", edit=lambda index, name=name: set_basename(index, name))

        with pytest.raises(StoreFormatError, match="inside the folder"):
            ps.open(folder)


def set_basename(index: dict[str, Any], name: str) -> None:
    """Change the name of the first shard."""
    index["shards"][0]["raw_data"]["basename"] = name


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    """A shard that the index lists must be there."""
    folder = write_set(tmp_path / "set")
    (folder / "shard.00001.mds").unlink()

    with pytest.raises(StoreFormatError, match=r"shard\.00001\.mds is listed"):
        ps.open(folder)


def read_whole(folder: Path, kind: str = "mds") -> list[ps.Record]:
    """All records."""
    with ps.open(f"{kind}://{folder}") as store:
        return list(store)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    """A shard that ends early is refused when it is read, whatever is missing."""
    folder = write_mds(tmp_path / "set", COLUMNS, [sample(i) for i in range(2)])
    path = folder / "shard.00000.mds"
    content = path.read_bytes()

    for end in range(len(content)):
        write_anew(path, content[:end])
        with pytest.raises(PenstockError):
            read_whole(folder)


def test_every_flipped_bit_is_read_or_refused(tmp_path: Path) -> None:
    """Without checksums, a flipped bit changes a value or is an error of ours; a count or an offset never crashes."""
    folder = write_mds(tmp_path / "set", COLUMNS, [sample(i) for i in range(2)])
    path = folder / "shard.00000.mds"
    content = bytearray(path.read_bytes())

    for bit in range(0, len(content) * 8, 3):
        content[bit // 8] ^= 1 << bit % 8
        write_anew(path, bytes(content))
        content[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(PenstockError):
            read_whole(folder)


def test_many_records_open_and_read(tmp_path: Path) -> None:
    """A hundred thousand records in shards."""
    with ps.open(write_many("mds", tmp_path, 100_000)) as store:
        assert len(store) == 100_000
        np.testing.assert_array_equal(store.column("label"), np.arange(100_000) % 1000)
        assert [bytes(r.fields["image"])[3:] for r in store.read([99_999, 0, 7000])] == [b"99999", b"0", b"7000"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["column_encodings", "column_names", "column_sizes", "compression", "format", "raw_data", "samples", "zip_data"]


@given(key=st.sampled_from([*KEYS, "version"]), value=JSON, in_all=st.booleans())
def test_any_index_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object, in_all: bool
) -> None:
    """An index with any value in place of another one gives records, or an error of ours."""
    folder = tmp_path_factory.getbasetemp() / "any-mds"
    write_set(folder, 4, edit=lambda index: [s.update({key: value}) for s in index["shards"][: None if in_all else 1]])

    with contextlib.suppress(PenstockError):
        read_whole(folder)


@given(value=JSON, text=st.binary(max_size=40), is_json=st.booleans())
@settings(max_examples=settings().max_examples // 2)
def test_any_file_in_place_of_the_index_is_refused(
    tmp_path_factory: pytest.TempPathFactory, value: object, text: bytes, is_json: bool
) -> None:
    """Whatever stands in index.json, the error says so."""
    folder = tmp_path_factory.getbasetemp() / "any-index"
    folder.mkdir(exist_ok=True)
    (folder / "index.json").write_bytes(json.dumps(value).encode() if is_json else text)

    for kind in ("mds", "litdata"):
        with pytest.raises(StoreFormatError):
            read_whole(folder, kind)


ENCODINGS = st.sampled_from(
    ["str", "int", "json", "pil", "jpeg", "bytes", "ndarray", "ndarray:uint8", "ndarray:int16:3", "str_int", "float32"]
)


@given(encoding=ENCODINGS, contents=st.lists(st.binary(max_size=40), min_size=1, max_size=3))
def test_any_value_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, encoding: str, contents: list[bytes]
) -> None:
    """Any bytes in any encoding give a value, or an error of ours."""
    folder = tmp_path_factory.getbasetemp() / "any-value"
    nbytes = {"int": 8, "float32": 4, "ndarray:int16:3": 6}.get(encoding)
    padded = [content if nbytes is None else content[:nbytes].ljust(nbytes, b"\1") for content in contents]
    write_mds(folder, {"value": (encoding, nbytes)}, [{"value": content} for content in padded])

    with contextlib.suppress(PenstockError):
        read_whole(folder)
