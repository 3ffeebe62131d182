"""``verify``: any flipped bit is found and named, and so is any disagreement with the source."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.errors import IncompleteStoreError, PenstockError, StoreFormatError, StoreNotFoundError
from penstock.stores.lmdb_pack.writer import LmdbWriter
from tests.effort import choose_tries
from tests.pack.images import make_photos, picture
from tests.stores.lmdb_pack.packs import SMALL_COMMITS, fields, key, make_pack, write


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack of a tree of several levels, with records inside leaves, over several pages, and free pages."""
    return make_pack(tmp_path / "p.lmdb", 60, SMALL_COMMITS)


def test_whole_pack_has_no_problems(pack: Path) -> None:
    """Nothing is found where nothing is wrong."""
    report = ps.verify(pack)

    assert (report.ok, report.records, report.problems) == (True, 60, ())


def flips(pack: Path, trials: int, seed: int) -> None:
    """Flip random single bits over all files of a pack; each must be found, and a record, page or file named."""
    files = {entry.name: entry.read_bytes() for entry in pack.iterdir()}
    sizes = np.array([len(content) for content in files.values()])
    rng = np.random.default_rng(seed)
    for trial in range(trials):
        # every tenth in the seals, which are a five-hundredth of the whole
        name = "pages.xxh3" if trial % 10 == 0 else str(rng.choice(list(files), p=sizes / sizes.sum()))
        spot, bit = int(rng.integers(len(files[name]))), int(rng.integers(8))
        damaged = bytearray(files[name])
        damaged[spot] ^= 1 << bit
        (pack / name).write_bytes(damaged)

        problems = ps.verify(pack).problems

        (pack / name).write_bytes(files[name])
        where = f"bit {bit} of byte {spot} of {name}"
        assert problems, f"{where} was not found"
        named = [each for each in problems if each.key is not None or each.page is not None or name in each.reason]
        assert named, f"{where} was found and not named: {problems}"
        if name == "data.mdb":
            assert any(each.page == spot // 4096 or each.key is not None for each in problems), f"{where}: {problems}"


@pytest.mark.tries
def test_any_flipped_bit_is_found_and_named(pack: Path) -> None:
    """Whichever bit of the pack's files is flipped, verify finds it and names a record or a page."""
    flips(pack, choose_tries(200), seed=1)


@pytest.mark.slow
def test_any_of_a_thousand_flipped_bits_is_found_and_named(pack: Path) -> None:
    """The same, more often."""
    flips(pack, 1000, seed=2)


def test_flipped_bit_of_an_image_names_its_key(pack: Path) -> None:
    """A flip in the bytes of one image names that image, and nothing else."""
    data = pack / "data.mdb"
    content = bytearray(data.read_bytes())
    spot = content.index(fields(9)["image"]) + 4000
    content[spot] ^= 64
    data.write_bytes(content)

    problems = ps.verify(pack).problems

    assert {problem.key for problem in problems if problem.index is not None} == {key(9)}
    assert {problem.index for problem in problems} <= {9, None}


def test_flipped_bit_of_small_fields_finds_the_key_elsewhere(pack: Path) -> None:
    """Where the record cannot tell its own key, the database of keys does."""
    data = pack / "data.mdb"
    content = bytearray(data.read_bytes())
    spot = content.index(fields(9)["image"]) - 3
    content[spot] ^= 1
    data.write_bytes(content)

    problems = ps.verify(pack).problems

    assert key(9) in {problem.key for problem in problems}


def test_several_damages_are_all_listed(pack: Path) -> None:
    """Every damaged record is listed, not only the first."""
    data = pack / "data.mdb"
    content = bytearray(data.read_bytes())
    for index in (3, 9, 33):
        content[content.index(fields(index)["image"]) + 5] ^= 1
    data.write_bytes(content)

    assert {key(index) for index in (3, 9, 33)} <= {problem.key for problem in ps.verify(pack).problems}


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 0.999])
def test_truncated_pack_is_reported(pack: Path, share: float, sealed: bool) -> None:
    """A truncated file is a finding, not an exception; it says what opening it says, and comes first."""
    os.truncate(pack / "data.mdb", int((pack / "data.mdb").stat().st_size * share))
    if not sealed:
        (pack / "pages.xxh3").unlink()
    with pytest.raises(StoreFormatError) as opened:
        ps.open(pack)

    report = ps.verify(pack)

    assert not report.ok
    assert report.records == 0
    assert report.problems[0].reason == opened.value.message


def test_truncated_pack_says_what_to_do(pack: Path) -> None:
    """How much is missing, and where to get it."""
    size = (pack / "data.mdb").stat().st_size
    os.truncate(pack / "data.mdb", size - 5000)

    reason = ps.verify(pack).problems[0].reason

    assert f"{size - 5000} bytes of {size} (5000 are missing)" in reason
    assert "copy it again, or pack the source again" in reason


def test_missing_data_are_reported(pack: Path) -> None:
    """Where only the seals are left, verify says which file is missing, as opening does."""
    (pack / "data.mdb").unlink()

    with pytest.raises(StoreNotFoundError, match=r"data.mdb is missing"):
        ps.open(pack)
    with pytest.raises(StoreNotFoundError, match=r"data.mdb is missing"):
        ps.verify(pack)


def test_missing_seals_are_reported(pack: Path) -> None:
    """Without its seals a pack is not proven whole."""
    (pack / "pages.xxh3").unlink()

    report = ps.verify(pack)

    assert [problem.reason.split(":")[0] for problem in report.problems] == ["pages.xxh3 is missing"]


@pytest.mark.parametrize("count", [3, 30])
def test_unfinished_pack_is_reported(tmp_path: Path, count: int) -> None:
    """An unfinished pack, with or without a commit, is one finding: what opening says, and what to do."""
    write(tmp_path / "p.lmdb", range(count), limits=SMALL_COMMITS).close()
    with pytest.raises(IncompleteStoreError) as opened:
        ps.open(tmp_path / "p.lmdb")

    report = ps.verify(tmp_path / "p.lmdb")

    assert [problem.reason for problem in report.problems] == [opened.value.message]
    assert "never finished" in opened.value.message
    assert "pack the same source again" in opened.value.message


def test_store_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A missing store is no finding but an error."""
    with pytest.raises(StoreNotFoundError):
        ps.verify(tmp_path / "nothing.lmdb")


def test_progress_ends_with_all_records(pack: Path) -> None:
    """The callable hears of all records at the end."""
    heard: list[tuple[int, int]] = []

    ps.verify(pack, progress=lambda done, total: heard.append((done, total)))

    assert heard[-1] == (60, 60)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures in two classes, packed beside."""
    photos = make_photos(tmp_path / "photos")
    ps.pack(photos, tmp_path / "photos.lmdb")
    return photos


def test_agreement_with_the_source(photos: Path, tmp_path: Path) -> None:
    """Every record is compared with the source it came from."""
    report = ps.verify(tmp_path / "photos.lmdb", photos)

    assert (report.ok, report.compared) == (True, 12)


def test_changed_file_of_the_source_is_named(photos: Path, tmp_path: Path) -> None:
    """A file whose bytes are others now is named."""
    (photos / "cats" / "4.jpg").write_bytes(picture(77))

    problems = ps.verify(tmp_path / "photos.lmdb", photos).problems

    assert [(problem.key, problem.index) for problem in problems] == [("cats/4.jpg", 2)]


def test_missing_and_added_files_are_named(photos: Path, tmp_path: Path) -> None:
    """A file that the source lost, and one that it gained, are named."""
    (photos / "cats" / "4.jpg").rename(photos / "cats" / "5.jpg")

    problems = ps.verify(tmp_path / "photos.lmdb", photos).problems

    assert {problem.key for problem in problems} == {"cats/4.jpg", "cats/5.jpg"}


def test_moved_file_has_another_label(photos: Path, tmp_path: Path) -> None:
    """A class folder renamed makes every label's meaning another one: said once."""
    (photos / "cats").rename(photos / "lions")

    problems = ps.verify(tmp_path / "photos.lmdb", photos).problems

    assert any("classes" in problem.reason for problem in problems)


def test_class_numbers_may_differ_where_names_agree(tmp_path: Path) -> None:
    """A pack whose classes stand in another order than the folder's now do holds the same classes: nothing is wrong."""
    photos = make_photos(tmp_path / "photos", 12, ("2", "10"))
    ps.pack(photos, tmp_path / "p.lmdb", classes=["2", "7", "10"])

    report = ps.verify(tmp_path / "p.lmdb", photos)

    assert (report.ok, report.compared) == (True, 12)


def test_source_with_an_empty_class_is_compared(photos: Path, tmp_path: Path) -> None:
    """A class folder that was emptied is no obstacle: its files are named as missing."""
    (photos / "dogs").rename(tmp_path / "elsewhere")
    (photos / "dogs").mkdir()

    problems = ps.verify(tmp_path / "photos.lmdb", photos).problems

    assert {problem.key for problem in problems} == {f"dogs/{number}.jpg" for number in range(1, 12, 2)}


def test_class_that_the_pack_lacks_is_named(photos: Path, tmp_path: Path) -> None:
    """A class folder that was added is named, and so are its files."""
    make_photos(photos, 1, ("lions",))

    problems = ps.verify(tmp_path / "photos.lmdb", photos).problems

    assert [problem.key for problem in problems] == [None, "lions/0.jpg"]
    assert "classes" in problems[0].reason
    assert "'lions'" in problems[0].reason


def test_wrong_label_in_the_pack_is_found(photos: Path, tmp_path: Path) -> None:
    """A pack whose label differs from the source's is found, the record named."""
    with ps.open(photos) as source:
        writer = LmdbWriter(str(tmp_path / "wrong.lmdb"), source.schema, "source")
        for record in source.read(range(len(source))):
            label = 1 - record.fields["label"] if record.index == 5 else record.fields["label"]
            writer.append(writer.prepare(record.key, {**record.fields, "label": label}))
        writer.finish()
        wrong = source.keys()[5]

    problems = ps.verify(tmp_path / "wrong.lmdb", photos).problems

    assert [(problem.key, problem.index) for problem in problems] == [(wrong, 5)]
    assert "label" in problems[0].reason


def test_damaged_record_and_source_are_both_checked(photos: Path, tmp_path: Path) -> None:
    """A record that is damaged is named once, and the others are still compared with the source."""
    data = tmp_path / "photos.lmdb" / "data.mdb"
    content = bytearray(data.read_bytes())
    content[content.index((photos / "cats" / "0.jpg").read_bytes()) + 9] ^= 1
    data.write_bytes(content)
    (photos / "cats" / "4.jpg").write_bytes(picture(77))

    problems = ps.verify(tmp_path / "photos.lmdb", photos).problems

    assert {problem.key for problem in problems} == {"cats/0.jpg", "cats/4.jpg"}


def test_folder_is_verified_by_reading_it(photos: Path) -> None:
    """A folder of images has no checksums; verifying it reads every file."""
    report = ps.verify(photos)

    assert (report.ok, report.records) == (True, 12)


def test_problems_survive_as_text(pack: Path) -> None:
    """Each problem says where and what in one line."""
    shutil.copy(pack / "data.mdb", pack / "copy")
    content = bytearray((pack / "copy").read_bytes())
    (pack / "copy").unlink()
    content[content.index(fields(9)["image"]) + 5] ^= 1
    (pack / "data.mdb").write_bytes(content)

    lines = [str(problem) for problem in ps.verify(pack).problems]

    assert any(line.startswith(f"record 9, {key(9)!r}, page ") for line in lines)
    with pytest.raises(PenstockError):
        ps.open(pack).read([9])


def test_fields_that_the_store_lacks_are_named(photos: Path, tmp_path: Path) -> None:
    """A field that was left out is a problem of the store, not of its records; one that was added is none."""
    images = [path.read_bytes() for path in sorted(photos.glob("*/*"))]
    ps.pack([{"image": image} for image in images], tmp_path / "whole.lmdb", source_id="images")
    scored = [{"image": image, "score": 0.5} for image in images]
    ps.pack(scored, tmp_path / "more.lmdb", source_id="scored")

    more = ps.verify(tmp_path / "more.lmdb", tmp_path / "whole.lmdb")
    fewer = ps.verify(tmp_path / "whole.lmdb", tmp_path / "more.lmdb")

    assert not more.problems
    assert [str(each) for each in fewer.problems] == [
        "the store has not all fields of the source, which also has 'score'"
    ]
    assert fewer.compared == fewer.records
