"""Packing with ``transcode="coefficients"``: records that decode faster, and give their files back byte for byte."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock as ps
import penstock.transforms as T
from penstock.datasets.base import Dataset
from penstock.errors import CorruptRecordError
from penstock.paths import COEFFICIENTS
from penstock.sample import Sample
from penstock.sheets import info
from tests.pack.images import picture
from tests.pack.test_transcode import images, progressive, three_scans
from tests.test_cli import run


def write_images(folder: Path) -> Path:
    """Baseline and progressive, gray, in three scans; CMYK and PNG, which stay as they are."""
    contents = [picture(seed) for seed in range(8)] + [progressive(8), progressive(9, "L"), three_scans()]
    contents += [progressive(10, "CMYK"), picture(11, "PNG")]
    for number, content in enumerate(contents):
        ending = "jpg" if content.startswith(b"\xff\xd8") else "png"
        place = folder / f"class{number % 3}" / f"{number:02}.{ending}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of images of several kinds."""
    return write_images(tmp_path / "photos")


@pytest.fixture
def pack(photos: Path, tmp_path: Path) -> Path:
    """The same as a pack of coefficients."""
    report = ps.pack(photos, tmp_path / "pack.lmdb", transcode="coefficients")
    assert (report.records, report.transcoded, report.kept) == (13, 11, 2)
    return tmp_path / "pack.lmdb"


def stored_images(store: Path | str) -> dict[str, bytes]:
    """What is stored of each image, by key."""
    with ps.open(store) as opened:
        return {each.key: bytes(each.fields["image"]) for each in opened.read_stored(range(len(opened)))}


def stored_forms(store: Path | str) -> list[bool]:
    """For each record, whether it holds coefficients."""
    return [content.startswith(COEFFICIENTS) for content in stored_images(store).values()]


def to_gray(sample: Sample) -> Sample:
    """What a user does in Python with the bytes of a file."""
    content, label = sample
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("L").resize((16, 16))), label


class Files(Dataset[bytes]):
    """The files of images, read by a user's own code."""

    def __init__(self, store: Path) -> None:
        self.store = ps.open(store)

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> bytes:
        return bytes(self.store[index].fields["image"])


def test_reading_gives_the_files(photos: Path, pack: Path) -> None:
    """By index, by key and in order, and through a dataset without a transform; most are stored as coefficients."""
    assert sum(stored_forms(pack)) == 11
    assert all(content == (photos / key).read_bytes() for key, content in images(pack).items())
    with ps.open(pack) as store:
        assert bytes(store["class0/00.jpg"].fields["image"]) == (photos / "class0/00.jpg").read_bytes()
        files = [bytes(each) for each in (record.fields["image"] for record in store)]
    assert files == [Files(pack)[index] for index in range(13)]
    assert [ps.StoreDataset(pack)[index]["image"] for index in range(13)] == files


def test_the_pack_agrees_with_its_source(photos: Path, pack: Path) -> None:
    """Verifying compares the files; another file is a problem."""
    assert ps.verify(pack, photos).ok
    (photos / "class1" / "01.jpg").write_bytes(picture(99))
    assert not ps.verify(pack, photos).ok


@pytest.mark.parametrize("workers", ["threads", "processes"])
@pytest.mark.parametrize(
    "transform",
    [
        [T.Decode(), T.RandomResizedCrop(24), T.HorizontalFlip(), T.Normalize([0.5] * 3, [0.2] * 3)],
        [T.Decode(), T.Resize(20), T.CenterCrop(16)],
        [T.Decode(to_srgb=True), T.Resize((16, 16))],
        to_gray,
    ],
    ids=["crop", "resize", "srgb", "python"],
)
def test_batches_are_those_of_the_files(
    photos: Path, pack: Path, tmp_path: Path, transform: object, workers: str
) -> None:
    """Fused and one by one, in threads and processes, with a user's own function."""
    ps.pack(photos, tmp_path / "files.lmdb")
    found = []
    for store in (pack, tmp_path / "files.lmdb"):
        dataset = ps.StoreDataset(store, transform=transform, fields=("image", "label"))  # type: ignore[arg-type]
        loader = ps.DataLoader(dataset, 4, shuffle=True, seed=3, num_workers=2, workers=workers)
        found.append([[np.asarray(value) for value in batch] for batch in loader])
    for ours, theirs in zip(*found, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_conversions_keep_the_files(photos: Path, pack: Path, tmp_path: Path) -> None:
    """To a folder, to tar and to a pack of files: each image as it was; and from a pack of files."""
    ps.convert(pack, f"files://{tmp_path / 'folder'}")
    for path in photos.rglob("*.*"):
        assert (tmp_path / "folder" / path.relative_to(photos)).read_bytes() == path.read_bytes()
    ps.convert(pack, tmp_path / "all.tar")
    with ps.open(tmp_path / "all.tar") as store:
        contents = {bytes(record.fields["image"]) for record in store}
    assert contents == {path.read_bytes() for path in photos.rglob("*.*")}
    ps.pack(pack, tmp_path / "files.lmdb")
    assert not any(stored_forms(tmp_path / "files.lmdb"))
    assert images(tmp_path / "files.lmdb") == images(pack)
    ps.pack(tmp_path / "files.lmdb", tmp_path / "again.lmdb", transcode="coefficients")
    assert stored_forms(tmp_path / "again.lmdb") == stored_forms(pack)


def test_shards_and_merged_packs_keep_the_form(photos: Path, tmp_path: Path) -> None:
    """A sharded pack reads as one; merging copies what is stored."""
    ps.pack(photos, tmp_path / "sharded", transcode="coefficients", shard_size=40_000)
    with ps.open(tmp_path / "sharded") as store:
        assert store.kind == "sharded"
    assert sum(stored_forms(tmp_path / "sharded")) == 11
    assert all(content == (photos / key).read_bytes() for key, content in images(tmp_path / "sharded").items())
    ps.merge([tmp_path / "sharded"], tmp_path / "merged.lmdb")
    assert sum(stored_forms(tmp_path / "merged.lmdb")) == 11


def test_images_are_resized_and_then_stored_so(photos: Path, tmp_path: Path) -> None:
    """The file that comes back is the smaller one."""
    ps.pack(photos, tmp_path / "small.lmdb", transcode="coefficients", resize=16)
    ps.pack(photos, tmp_path / "files.lmdb", resize=16)
    assert images(tmp_path / "small.lmdb") == images(tmp_path / "files.lmdb")
    assert any(stored_forms(tmp_path / "small.lmdb"))


def test_damage_names_the_record(pack: Path) -> None:
    """A flipped bit is an error with the key, by reading and by decoding, and never other pixels."""
    place = pack / "data.mdb" if pack.is_dir() else pack
    content = bytearray(place.read_bytes())
    at = content.index(COEFFICIENTS)
    content[at + 900] ^= 16
    place.write_bytes(content)
    with ps.open(pack) as store, pytest.raises(CorruptRecordError, match="class"):
        store.read(range(13))
    with pytest.raises(CorruptRecordError, match="class"):
        list(ps.DataLoader(ps.StoreDataset(pack, transform=[T.Decode(), T.Resize((8, 8))]), 13))


def test_the_bytes_decode_by_themselves(pack: Path) -> None:
    """``decode``, ``sizes`` and an image's mode and profile are those of the file."""
    with ps.open(pack) as store:
        for stored, record in zip(store.read_stored(range(13)), store.read(range(13)), strict=True):
            kept, file = bytes(stored.fields["image"]), bytes(record.fields["image"])
            assert T.sizes([kept]).tolist() == T.sizes([file]).tolist()
            np.testing.assert_array_equal(ps.decode(kept), ps.decode(file))
            for mode in ("L", "unchanged", "RGBA"):
                np.testing.assert_array_equal(ps.decode(kept, mode=mode), ps.decode(file, mode=mode))
            with Image.open(io.BytesIO(file)) as image:
                assert T.sizes([kept]).tolist() == [[*image.size]]


def test_coefficients_need_no_decode_index(pack: Path) -> None:
    """The report says why they have none."""
    left_out = dict(ps.index(pack).left_out)

    assert sum(reason.startswith("stored as coefficients: ") for reason in left_out.values()) == 11


def test_the_commands_take_such_packs(photos: Path, tmp_path: Path) -> None:
    """Packed in shards, verified, merged, drawn, and converted to files and back on the command line."""
    shards, merged, back = tmp_path / "shards.lmdb", tmp_path / "merged.lmdb", tmp_path / "back.lmdb"
    folder = f"files://{tmp_path / 'folder'}"
    commands: list[tuple[object, ...]] = [
        ("pack", photos, shards, "--transcode", "coefficients", "--shard-size", "20kB"),
        ("verify", shards, "--source", photos),
        ("merge", shards, merged),
        ("verify", merged, "--source", photos),
        ("show", merged, "--output", tmp_path / "drawn.png"),
        ("convert", merged, folder),
        ("convert", merged, tmp_path / "converted.tar"),
        ("pack", tmp_path / "converted.tar", back, "--transcode", "coefficients"),
    ]

    done = [run(*command) for command in commands]

    assert [(each.stderr, each.returncode) for each in done if each.returncode] == []
    assert "11 images transcoded to coefficients, 2 unchanged" in done[0].stdout
    assert len(list(shards.glob("*.lmdb"))) > 1
    for path in photos.rglob("*.*"):
        assert (tmp_path / "folder" / path.relative_to(photos)).read_bytes() == path.read_bytes()
    assert stored_forms(merged) == stored_forms(shards)
    assert sum(stored_forms(back)) == 11
    assert sorted(images(back).values()) == sorted(images(merged).values())


def test_info_counts_what_is_stored(photos: Path, pack: Path) -> None:
    """How many images are stored as coefficients, and how many as files; the bytes of both, and of the files."""
    form = "JPEG (coefficients)"
    stored = {key: content for key, content in stored_images(pack).items() if content.startswith(COEFFICIENTS)}
    nbytes = sum(map(len, stored.values())), sum((photos / key).stat().st_size for key in stored)

    found = info(pack)
    told, as_json = (run("info", pack, *more).stdout for more in ([], ["--json"]))

    assert found.formats == {form: 11, "JPEG": 1, "PNG": 1}
    assert (found.stored_nbytes[form], found.files_nbytes[form]) == nbytes
    assert sum(found.files_nbytes.values()) == sum(path.stat().st_size for path in photos.rglob("*.*"))
    assert f"{form} {nbytes[0] / 1000:.1f} kB ({nbytes[0] / nbytes[1]:.3f} of the files' " in told
    assert json.loads(as_json)["files_nbytes"] == found.files_nbytes
