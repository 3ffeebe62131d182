"""Write the files of one version of a format: ``python -m tests.formats.writing NAME FOLDER`` (see README.md).

It also runs with the code of earlier versions, whose modules had other names: it imports them where they are used.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import penstock as ps
from tests.formats.loaders import SHARED, make_loader, take

__all__ = ["describe", "describe_records", "write_description"]

FIELDS = {
    "image": "image", "mask": "mask", "attached": "bytes", "label": "label", "count": "int", "ratio": "float",
    "caption": "text", "boxes": "boxes", "keypoints": "keypoints", "scores": "float32[*]",
}  # fmt: skip


def describe(value: Any) -> Any:
    """What is compared of a value: numbers and short texts as they are, else kind, shape and a hash."""
    if value is None or isinstance(value, int | float | str | list | dict):
        return value
    if isinstance(value, np.generic):
        return value.item()
    array = value if isinstance(value, np.ndarray) else np.frombuffer(value, np.uint8)
    kind = f"{array.dtype}{list(array.shape)}" if isinstance(value, np.ndarray) else f"bytes[{array.size}]"
    return f"{kind} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def describe_records(path: Path) -> list[dict[str, Any]]:
    """Key and fields of each record of a store."""
    with ps.open(path) as store:
        return [
            {"key": record.key} | {name: describe(value) for name, value in record.fields.items()}
            for record in store.read(list(range(len(store))))
        ]


def write_description(store: Path) -> None:
    """Write what is in a store beside it."""
    lines = [json.dumps(record) for record in describe_records(store)]
    Path(f"{store}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def _encode(number: int, kind: str = "JPEG", **options: Any) -> bytes:
    rng = np.random.default_rng(number)
    pixels = np.kron(rng.integers(0, 256, (4, 5, 3), np.uint8), np.ones((20 + number, 20, 1), np.uint8))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def _make_record(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(100 + number)
    mask = io.BytesIO()
    Image.fromarray(rng.integers(0, 3, (6, 7), np.uint8)).save(mask, "PNG")
    return {
        "image": _encode(number, "PNG" if number == 2 else "JPEG"), "mask": mask.getvalue(),
        "attached": bytes(range(number)), "label": number % 2, "count": number - 1, "ratio": number / 4,
        "caption": f"Bild {number}: Käfer",
        "boxes": rng.random((number, 4)).astype(np.float32) + np.array([0, 0, 2, 2]),
        "keypoints": rng.random((2, 3)).astype(np.float32),
        "scores": rng.random(number).astype(np.float32),
    }  # fmt: skip


def _write_pack(path: Path, fields: Mapping[str, Any], records: list[dict[str, Any]]) -> None:
    try:
        writing = importlib.import_module("penstock.stores.lmdb_pack.writer")
    except ModuleNotFoundError:
        writing = importlib.import_module("penstock.stores.lmdb_write")
    schema = ps.Schema(
        {name: ps.Field(kind, ("cat", "dog") if kind == "label" else ()) for name, kind in fields.items()}
    )
    writer = writing.LmdbWriter(str(path), schema, "source")
    for number, record in enumerate(records):
        values = {name: np.asarray(value, np.float32) if name == "boxes" else value for name, value in record.items()}
        writer.append(writer.prepare(f"{'cat' if number % 2 else 'dog'}/{number}", values))
    writer.finish()
    writer.close()
    write_description(path)


def _write_pack_1(folder: Path) -> None:
    """Encoded images and every kind of small field; with a decode index where the version makes one."""
    path = folder / "photos.lmdb"
    _write_pack(path, FIELDS, [_make_record(number) for number in range(4)])
    if hasattr(ps, "index"):
        ps.index(str(path))


def _write_pack_2(folder: Path) -> None:
    """Pixels of one dtype; small fields without a value; small records, which share blocks."""
    rng = np.random.default_rng(8)
    pixels = [rng.integers(0, 256, (3 + number, 4, 3), np.uint8) for number in range(3)]
    _write_pack(
        folder / "pixels.lmdb",
        {"image": "pixels:uint8[*,*,3]", "label": "label", "json": "json"},
        [{"image": each, "label": None if i == 1 else i, "json": {"at": [i, None]}} for i, each in enumerate(pixels)],
    )
    small = [{"image": each, "label": i % 2} for i, each in enumerate(rng.integers(0, 256, (9, 5, 5, 1), np.uint8))]
    _write_pack(folder / "blocks.lmdb", {"image": "pixels:uint8[5,5,1]", "label": "label"}, small)


def _write_pack_3(folder: Path) -> None:
    """Gray and colour pixels side by side."""
    shapes = [(3, 4, 1), (3, 4, 3), (5, 2, 4)]
    pixels = [np.random.default_rng(9).integers(0, 256, shape, np.uint8) for shape in shapes]
    _write_pack(folder / "mixed.lmdb", {"image": "pixels:uint8[*,*,*]"}, [{"image": each} for each in pixels])


def _write_sharded(folder: Path) -> None:
    """A pack in two shards."""
    samples = [(_encode(number), number % 2) for number in range(4)]
    path = folder / "photos.lmdb"
    ps.pack(samples, str(path), schema={"image": "image", "label": "label"}, shard_size=2, index="none", source_id="4")
    write_description(path)


def _write_coefficients(folder: Path) -> None:
    """Coefficients of JPEGs: baseline, progressive, with other tables and restart markers; a PNG stays as it is."""
    kinds: list[dict[str, Any]] = [{}, {"progressive": True}, {"optimize": True, "restart_marker_blocks": 3}]
    samples = [(_encode(number, **options), number) for number, options in enumerate(kinds)]
    path = folder / "photos.lmdb"
    schema = {"image": "image", "label": "int"}
    ps.pack([*samples, (_encode(3, "PNG"), 3)], path, schema=schema, transcode="coefficients", source_id="4")
    write_description(path)


def _write_index(kind: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        """Two JPEGs and a PNG, which has no index, and the decode index."""
        images = [{"image": _encode(number + 20, "JPEG" if number < 2 else "PNG")} for number in range(3)]
        _write_pack(folder / "photos.lmdb", {"image": "image"}, images)
        ps.index(str(folder / "photos.lmdb"), kind=kind)

    return write


def _write_split(folder: Path) -> None:
    """A split of the pack of version 1 beside it, in both forms."""
    with ps.open(folder.parent / "pack-1" / "photos.lmdb") as store:
        split = ps.split(store, {"train": 0.5, "val": 0.5}, seed=3)
        split.write(folder / "split.json")
        split.write(folder / "split.csv")
        parts = {name: split[name].tolist() for name in split.names}
    (folder / "parts.json").write_text(json.dumps(parts))


def _write_tables(folder: Path) -> None:
    """What `convert` writes with fields of ours: HDF5, Parquet, tar."""
    source = folder.parent / "pack-1" / "photos.lmdb"
    for name in ("photos.h5", "photos.parquet", "photos.tar"):
        ps.convert(str(source), str(folder / name))
        write_description(folder / name)
    for report in folder.glob("*.convert.json"):  # names the folders of this machine
        report.unlink()


def _write_report(folder: Path) -> None:
    """What `penstock doctor --json` writes."""
    script = folder / "train.py"
    script.write_text(
        "import numpy as np\nimport penstock as ps\n\n"
        "for batch in ps.DataLoader(ps.ArrayDataset(np.arange(4000)), 4, num_workers=1):\n    pass\n"
    )
    options = ["--budget", "20", "--seconds", "1", "--steps", "8", "--json", "report.json", script.name]
    subprocess.run([sys.executable, "-m", "penstock", "doctor", *options], cwd=folder, check=False)


def _write_states(names: tuple[str, ...]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        """A state after two batches, and the batches that follow in this epoch and the next one."""
        for name in names:
            loader = make_loader(name)
            iterator = iter(loader)
            for _ in range(2):
                next(iterator)
            state = json.loads(json.dumps(loader.state_dict()))
            iterator.close()
            again = make_loader(name)
            again.load_state_dict(state)
            kept = {"loader": name, "state": state, "expected": [take(again, 99), take(again, 99)]}
            (folder / f"{name}.json").write_text(json.dumps(kept) + "\n")

    return write


WRITERS: dict[str, Callable[[Path], None]] = {
    "pack-1": _write_pack_1,
    "pack-2": _write_pack_2,
    "pack-3": _write_pack_3,
    "sharded-pack-1": _write_sharded,
    "coefficients-1": _write_coefficients,
    "decode-index-1": _write_index("tiles"),
    "decode-index-1-rows": _write_index("rows"),
    "split-1": _write_split,
    "tables-1": _write_tables,
    "doctor-report-2": _write_report,
    "state-1": _write_states((*SHARED, "mixture", "stream", "stream-mixture", "torch-stream", "torch-stream-mixture")),
    "state-1-early": _write_states(SHARED),
    "state-1-first-loader": _write_states(("arrays",)),
}


def main(name: str, around: Path) -> None:
    """Write ``<name>.zip`` beside this script. Files that others are made of are found in ``around``."""
    folder = around / name
    folder.mkdir(parents=True)
    WRITERS[name.removesuffix("-first-writer")](folder)
    shutil.make_archive(str(Path(__file__).parent / name), "zip", folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
