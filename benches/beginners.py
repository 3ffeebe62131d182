"""Claim: the doctor names the stage that limits a beginner's script, and its fix makes it faster by what it says.

Thirty scripts in ``planted/beginners``, written as in first projects and blog posts, and twelve in
``planted/strangers``, all without a look at the doctor's rules. Each is copied and run by ``penstock doctor --fix
--write``; then the copy is timed as it was and as it is then, in turns. A fix counts as right if it was written into
the file, makes the script faster by 5 % or more, and by what the doctor measured within 20 %. A stage counts as right
by the author's word, and, apart, if it is that whose absence brings most.

What was found is kept in ``--results`` after each script, and the next call goes on with what is missing. So it can
be run in pieces (``--minutes``), on a quiet machine: three repetitions of all take hours. Needs torchvision, OpenCV,
pandas, h5py, pyarrow, SciPy.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness import images_folder, machine

PLANTED = Path(__file__).resolve().parent / "planted"
FASTER, NEAR = 1.05, 0.2
"""What a fix has to bring, and how far that may be from what was said."""
STAGES = {
    "01_flowers_pillow": "decode",
    "02_resnet_imagefolder": "step",
    "03_npy_rows": "read",
    "04_pandas_iloc": "augment",
    "05_hdf5_opened_each_time": "read",
    "06_opencv_camera": "decode",
    "07_labels_from_json": "augment",
    "08_dict_of_features": "collate",
    "09_speech_spectrogram": "augment",
    "10_reviews_tokens": "augment",
    "11_cats_dogs_512": "decode",
    "12_sixteen_workers": "workers",
    "13_segmentation_rotate": "augment",
    "14_zip_opened_each_time": "read",
    "15_sqlite_rows": "read",
    "16_stock_windows": "augment",
    "17_strong_augmentation": "augment",
    "18_mnist_mlp": "step",
    "19_tensor_dataset_tiny": "collate",
    "20_new_loader_each_epoch": "workers",
    "21_listdir_each_item": "read",
    "22_pickle_files": "read",
    "23_noise_by_hand": "augment",
    "24_big_png": "decode",
    "25_parquet_read_each_time": "read",
    "26_lines_stream": "augment",
    "27_mixup_in_collate": "collate",
    "28_triplets": "decode",
    "29_video_frames": "decode",
    "30_small_cnn_cached": "step",
}
"""What limits each, by its author's opinion before it was run."""


def list_scripts() -> dict[str, str]:
    """All scripts, as ``set/name``, and the stage that the author of each expected."""
    strangers = json.loads((PLANTED / "strangers" / "stages.json").read_text())
    return {
        **{f"beginners/{name}": stage for name, stage in STAGES.items()},
        **{f"strangers/{name}": each["stage"] for name, each in strangers.items()},
    }


def examine(script: Path, data: Path, budget: int, rounds: int) -> dict[str, Any]:
    """Have a copy of a script mended, and time it: what the doctor found and said, and what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        copied, report = Path(folder) / script.name, Path(folder) / "result.json"
        shutil.copy(script, copied)
        options = ["--fix", "--write", "--json", str(report), "--budget", str(budget), "--seconds", "20"]
        command = [sys.executable, "-m", "penstock", "doctor", *options, str(copied), str(data)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if not report.exists():
            return {"stage": "failed", "error": done.stderr[-500:]}
        found = read_report(json.loads(report.read_text()))
        if found["written"]:
            before = copied.with_name(f"{copied.name}.orig").rename(copied.with_name(f"before_{copied.name}"))
            speeds = [(time_script(before, data), time_script(copied, data)) for _ in range(rounds)]
            found["got"] = statistics.median(after / speed for speed, after in speeds)
        return found


def read_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """What counts of the doctor's JSON."""
    parts = {stage: each["part"] for stage, each in report["absences"].items()}
    fix = report["fix"] or {}
    return {
        "stage": report["verdict"]["stage"],
        "greatest": max(parts, key=lambda stage: parts[stage], default=report["verdict"]["stage"]),
        "change": fix.get("change", ""),
        "said": fix.get("measured"),
        "written": bool(fix.get("written")),
        "got": None,
    }


def time_script(script: Path, data: Path) -> float:
    """Samples a second that it prints last."""
    done = subprocess.run([sys.executable, str(script), str(data)], capture_output=True, text=True, check=True)
    return float(re.findall(r"([\d.,e+]+) samples/s", done.stdout)[-1].replace(",", ""))


def is_right(run: Mapping[str, Any]) -> bool:
    """Return whether a fix could be followed to the letter, and brought what was said."""
    said, got = run.get("said"), run.get("got")
    return said is not None and got is not None and got >= FASTER and abs(got / said - 1) <= NEAR


def run_missing(
    wanted: Iterable[tuple[str, int]], results: Path, minutes: float, find: Callable[[str], dict[str, Any]],
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:  # fmt: skip
    """Run what ``results`` does not have, scripts with their repetition, until the time is over; return all of it."""
    runs: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    deadline = clock() + 60 * minutes
    for name, repetition in wanted:
        key = f"{name}#{repetition}"
        if key in runs:
            continue
        if clock() >= deadline:
            break
        runs[key] = find(name)
        written = results.with_name(f"{results.name}.new")
        written.write_text(json.dumps(runs, indent=1))
        written.replace(results)
        print(format_run(key, runs[key]), flush=True)
    return runs


def format_run(key: str, run: Mapping[str, Any]) -> str:
    """One line of the table."""
    said, got = ("-" if run.get(name) is None else f"{run[name]:.2f}" for name in ("said", "got"))
    stage, expected = run["stage"], list_scripts().get(key.partition("#")[0], "?")
    change, verdict = run.get("change") or run.get("error", "") or "-", "yes" if is_right(run) else "no"
    cells = (key, expected, stage, run.get("greatest", "-"), change, said, got, verdict if got != "-" else "-")
    return f"| {' | '.join(' '.join(str(cell).split()) for cell in cells)} |"


def summarize(runs: Mapping[str, Mapping[str, Any]], expected: Mapping[str, str]) -> str:
    """How many runs were right."""
    stages = {key: expected.get(key.partition("#")[0]) for key in runs}
    named = sum(run["stage"] == stages[key] for key, run in runs.items())
    greatest = sum(run.get("greatest") == stages[key] for key, run in runs.items())
    got = [run["got"] for run in runs.values() if run.get("got") is not None]
    return (
        f"{len(runs)} runs. Stage by the author's word: {named}; that whose absence brings most: {greatest}. A fix "
        f"followed to the letter: {len(got)}, right: {sum(map(is_right, runs.values()))}, slower than before: "
        f"{sum(each < 1 for each in got)}."
    )


def make_data(name: str, data: Path, images: Path | None) -> Path:
    """The data of the set of a script, made where they are not."""
    kind = name.partition("/")[0]
    folder, done = data / kind, data / kind / "is_made"
    if not done.exists():
        maker = PLANTED / kind / "make_data.py"
        subprocess.run([sys.executable, maker, images_folder(images), folder], check=True)
        done.touch()
    return folder


def main() -> None:
    """Run and print."""
    scripts = list_scripts()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--data", type=Path, help="where the scripts' data are, or are made")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="parts of names, such as strangers/03")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no script after so many")
    parser.add_argument("--results", type=Path, help="a file of what was found so far, which is gone on with")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budget", type=int, default=60)
    options = parser.parse_args()
    chosen = [name for name in scripts if not options.only or any(part in name for part in options.only)]
    data = options.data or Path(tempfile.mkdtemp())
    data.mkdir(parents=True, exist_ok=True)

    def find(name: str) -> dict[str, Any]:
        folder = make_data(name, data, options.images)
        return examine(PLANTED / f"{name}.py", folder, options.budget, options.rounds)

    head = ("script", "stage", "doctor", "greatest absence", "fix", "said", "got", "right")
    print(f"{machine()}.\n\n| {' | '.join(head)} |\n{'|---' * len(head)}|", flush=True)
    wanted = [(name, repetition) for repetition in range(1, options.repetitions + 1) for name in chosen]
    runs = run_missing(wanted, options.results or data / "results.json", options.minutes, find)
    print(f"\n{summarize(runs, scripts)}")


if __name__ == "__main__":
    main()
