"""LitData folders: leaves and their names, encodings, compression, tokens, damage, any bytes."""

from __future__ import annotations

import contextlib
import json
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import ArgumentError, CorruptRecordError, PenstockError, StoreFormatError
from tests.stores.written import dict_spec, leaf, pil, tuple_spec, write_anew, write_litdata, write_many

JPEG = b"\xff\xd8\xff" + bytes(30)
FORMATS = ("jpeg", "int")


def sample(index: int) -> tuple[bytes, bytes]:
    """An encoded picture with its number."""
    return JPEG + b"%d" % index, struct.pack("<q", index)


def write_set(folder: Path, count: int = 7, **options: Any) -> Path:
    """A folder of samples, three in a chunk."""
    samples = [sample(i) for i in range(count)]
    return write_litdata(folder, dict_spec(["image", "label"]), FORMATS, samples, per_chunk=3, **options)


def write_one(folder: Path, encoding: str, contents: Sequence[bytes]) -> Path:
    """Records of one leaf."""
    return write_litdata(folder, dict_spec(["value"]), [encoding], [(content,) for content in contents])


def header(order: str, dtype: int, *shape: int) -> bytes:
    """What stands before an array."""
    return struct.pack(f"{order}II{len(shape)}I", dtype, len(shape), *shape)


@pytest.mark.parametrize(
    ("encoding", "content", "kind", "value"),
    [
        ("int", struct.pack("<q", -5), "int", -5),
        ("float", struct.pack("<d", 0.1), "float", 0.1),
        ("bool", b"\1", "int", 1),
        ("str", "größe".encode(), "text", "größe"),
        ("bytes", b"any bytes", "bytes", b"any bytes"),
        ("bytes", JPEG, "image", JPEG),
        ("image:png", b"whatever", "image", b"whatever"),
        ("file:wav", b"RIFF", "bytes", b"RIFF"),
        ("audio:wav", JPEG, "bytes", JPEG),
        ("numpy", header("<", 9, 2) + struct.pack("<2f", 1, 2), "float32[*]", [1.0, 2.0]),
        ("tensor", header(">", 17, 1, 2) + struct.pack("<2q", 1, -2), "int64[*,*]", [[1, -2]]),
        ("tensor", header(">", 17) + struct.pack("<q", 9), "int", 9),
        ("tensor", header(">", 0) + struct.pack("<f", 0.5), "float", 0.5),
        ("no_header_tensor:15", struct.pack("<2i", 3, -4), "int32[*]", [3, -4]),
        ("no_header_numpy:4", b"\1\2", "uint8[*]", [1, 2]),
        ("no_header_numpy:4", b"", "uint8[*]", []),
    ],
)
def test_values_are_those_that_were_encoded(
    tmp_path: Path, encoding: str, content: bytes, kind: str, value: object
) -> None:
    """Each encoding gives its value, and the kind of the field."""
    with ps.open(write_one(tmp_path / "set", encoding, [content])) as store:
        name = next(iter(store.schema.fields))
        found = store[0].fields[name]

        assert store.schema[name].kind == kind
    plain = (
        bytes(found) if isinstance(found, memoryview) else found.tolist() if isinstance(found, np.ndarray) else found
    )
    assert plain == value


def test_images_of_pillow_are_pixels(tmp_path: Path) -> None:
    """An image of encoding pil is an HWC array."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 3), np.uint8)

    with ps.open(write_one(tmp_path / "set", "pil", [pil(4, 2, "RGB", pixels.tobytes())])) as store:
        np.testing.assert_array_equal(store[0].fields["image"], pixels)


def test_leaves_are_named_by_the_tree(tmp_path: Path) -> None:
    """Keys of dicts are names, joined by dots; in a tuple, the only image and the only integer are found."""
    inner = {"type": "builtins.dict", "context": json.dumps(["size", "url"]), "children_spec": [leaf(), leaf()]}
    tree = {
        "type": "collections.OrderedDict",
        "context": json.dumps(["image", "meta"]),
        "children_spec": [leaf(), inner],
    }
    nested = write_litdata(
        tmp_path / "nested", json.dumps([1, tree]), ["jpeg", "int", "str"], [(JPEG, struct.pack("<q", 3), b"u")]
    )
    pair = write_litdata(tmp_path / "pair", tuple_spec(2), FORMATS, [sample(4)])
    many = write_litdata(tmp_path / "many", tuple_spec(3), ["int", "int", "str"], [(*[bytes(8)] * 2, b"x")])
    single = write_litdata(tmp_path / "single", json.dumps([1, leaf()]), ["str"], [(b"text",)])

    assert list(ps.open(nested).schema.fields) == ["image", "meta.size", "meta.url"]
    assert list(ps.open(pair).schema.fields) == ["image", "label"]
    assert list(ps.open(many).schema.fields) == ["0", "1", "2"]
    assert list(ps.open(single).schema.fields) == ["value"]
    assert ps.open(pair)[0].fields["label"] == 4


def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    """Pickles, unknown encodings and encryption are errors that say what to do."""
    for encoding in ("pickle", "graph:pickle", "hologram", "no_header_tensor:10"):
        folder = write_litdata(tmp_path / "set", dict_spec(["x", "label"]), [encoding, "int"], [(b"1", bytes(8))])
        with pytest.raises(ArgumentError, match=r"'x'.*fields=\['label'\]"):
            ps.open(folder)
        with ps.open(folder, fields=["label"]) as store:
            assert store[0].fields == {"label": 0}
    encrypted = write_set(tmp_path / "secret", edit=lambda index: index["config"].update(encryption={"level": "chunk"}))
    with pytest.raises(ArgumentError, match="encrypted"):
        ps.open(encrypted)


def test_tokens_are_arrays(tmp_path: Path) -> None:
    """Chunks of tokens have no sizes: each item is one array."""
    tokens = [np.arange(n, dtype=np.int32) for n in (3, 5, 1)]
    folder = write_litdata(
        tmp_path / "set", json.dumps([1, leaf()]), ["no_header_tensor:15"], [(t.tobytes(),) for t in tokens],
        loader="TokensLoader",
    )  # fmt: skip

    with ps.open(folder) as store:
        assert store.schema["tokens"].kind == "int32[*]"
        assert [record.fields["tokens"].tolist() for record in store] == [t.tolist() for t in tokens]


@pytest.mark.parametrize("level", [None, "chunk", "batch", "sample"])
def test_compressed_chunks_are_read(tmp_path: Path, level: str | None) -> None:
    """Chunks that are compressed as a whole, in batches or sample by sample."""
    folder = write_set(tmp_path / "set", compression="zstd", level=level)

    with ps.open(folder) as store:
        assert [bytes(record.fields["image"]) for record in store] == [sample(i)[0] for i in range(7)]
    with pickle.loads(pickle.dumps(ps.open(folder))) as store:
        assert store[6].fields["label"] == 6


@pytest.mark.parametrize("level", ["chunk", "batch", "sample"])
def test_every_flipped_bit_of_a_compressed_chunk_is_read_or_refused(tmp_path: Path, level: str) -> None:
    """Frames that do not fit, sizes that are wrong, damaged bytes: an error of ours or other values."""
    folder = write_set(tmp_path / "set", 3, compression="zstd", level=level)
    path = next(folder.glob("*.bin"))
    content = bytearray(path.read_bytes())

    for bit in range(0, len(content) * 8, 11):
        content[bit // 8] ^= 1 << bit % 8
        write_anew(path, bytes(content))
        content[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(PenstockError):
            read_whole(folder)


def test_a_record_of_another_type_is_damage(tmp_path: Path) -> None:
    """What a column holds follows from some records; one with another dtype names itself."""
    contents = [header("<", 9, 1) + bytes(4)] * 200
    contents[101] = header("<", 10, 1) + bytes(8)

    with ps.open(write_one(tmp_path / "set", "numpy", contents)) as store:
        assert store[100].fields["value"].tolist() == [0.0]
        with pytest.raises(CorruptRecordError, match="float64 of shape") as caught:
            store.read([101])
    assert caught.value.where["index"] == 101


def read_whole(folder: Path) -> list[ps.Record]:
    """All records."""
    with ps.open(f"litdata://{folder}") as store:
        return list(store)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    """A chunk that ends early is refused when it is read, whatever is missing."""
    folder = write_set(tmp_path / "set", 2)
    path = folder / "chunk-0-0.bin"
    content = path.read_bytes()

    for end in range(len(content)):
        write_anew(path, content[:end])
        with pytest.raises(PenstockError):
            read_whole(folder)


def test_many_records_open_and_read(tmp_path: Path) -> None:
    """A hundred thousand records in chunks."""
    with ps.open(write_many("litdata", tmp_path, 100_000)) as store:
        assert len(store) == 100_000
        np.testing.assert_array_equal(store.column("label"), np.arange(100_000) % 1000)
        assert [bytes(r.fields["image"])[3:] for r in store.read([99_999, 0, 7000])] == [b"99999", b"0", b"7000"]


def test_a_set_in_parts_is_asked_for_one(tmp_path: Path) -> None:
    """A folder of parts names them."""
    write_set(tmp_path / "set" / "train")

    with pytest.raises(ArgumentError, match="parts train"):
        ps.open(tmp_path / "set")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SPECS = st.recursive(
    st.just(leaf()),
    lambda inner: st.builds(
        lambda kind, context, children: {"type": kind, "context": context, "children_spec": children},
        st.sampled_from(["builtins.dict", "builtins.tuple", "builtins.list", "collections.defaultdict", None]),
        st.sampled_from(["null", '["a"]', '["a", "b"]', '["a", "a"]', '{"dict_context": ["x"]}', "[", "7"]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=5,
)


@given(
    where=st.sampled_from(["config", "chunk"]),
    key=st.sampled_from(
        [
            "chunk_bytes",
            "chunk_size",
            "compression",
            "compression_level",
            "data_format",
            "data_spec",
            "encryption",
            "filename",
            "item_loader",
        ]
    ),
    value=st.one_of(JSON, SPECS.map(lambda tree: json.dumps([1, tree]))),
)
def test_any_index_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, where: str, key: str, value: object
) -> None:
    """An index with any value in place of another one gives records, or an error of ours."""
    folder = tmp_path_factory.getbasetemp() / "any-litdata"
    write_set(folder, 4, edit=lambda i: (i["config"] if where == "config" else i["chunks"][0]).update({key: value}))

    with contextlib.suppress(PenstockError):
        read_whole(folder)


ENCODINGS = st.sampled_from(["int", "float", "bool", "str", "pil", "numpy", "tensor", "bytes", "no_header_numpy:3"])


@given(encoding=ENCODINGS, contents=st.lists(st.binary(max_size=40), min_size=1, max_size=3), axes=st.integers(0, 4))
def test_any_value_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, encoding: str, contents: list[bytes], axes: int
) -> None:
    """Any bytes in any encoding give a value, or an error of ours."""
    folder = tmp_path_factory.getbasetemp() / "any-leaf"
    order = {"numpy": "<", "tensor": ">"}.get(encoding)
    heads = [b"" if order is None else struct.pack(f"{order}II", c[0] % 21 if c else 0, axes) for c in contents]
    write_one(folder, encoding, [head + content for head, content in zip(heads, contents, strict=True)])

    with contextlib.suppress(PenstockError):
        read_whole(folder)


def test_deep_trees_are_refused(tmp_path: Path) -> None:
    """A tree that is nested without end costs no stack."""
    tree = leaf()
    for _ in range(100):
        tree = {"type": "builtins.list", "context": "null", "children_spec": [tree]}
    folder = write_litdata(tmp_path / "set", json.dumps([1, tree]), ["int"], [(bytes(8),)])
    endless = write_litdata(tmp_path / "endless", "[" * 100_000, ["int"], [(bytes(8),)])

    with pytest.raises(StoreFormatError, match="32 levels"):
        ps.open(folder)
    with pytest.raises(StoreFormatError, match=r"index\.json is not valid"):
        ps.open(endless)
