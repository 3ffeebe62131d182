"""Claim: the doctor names the stage that limits a beginner's script, and what its first advice brings.

Thirty scripts in ``planted/beginners``, written as in first projects and blog posts, without a look at the doctor's
rules. Each is run by ``penstock doctor``; where the first advice is a line that can be put into the script by a program
(arguments of the loader, threads), it is followed, and the script is timed as it was and as it is then, in turns.
Other advice is printed, to be followed by a person. Run it on a quiet machine; needs torchvision, OpenCV, pandas,
h5py, pyarrow, SciPy.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import images_folder, machine

SCRIPTS = Path(__file__).resolve().parent / "planted" / "beginners"
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


def examine(script: Path, data: Path, budget: int) -> dict[str, Any]:
    """The doctor's JSON of a script."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        options = ["--json", str(result), "--budget", str(budget), "--seconds", "20"]
        command = [sys.executable, "-m", "penstock", "doctor", *options, str(script), str(data)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if not result.exists():
            return {"verdict": {"stage": "failed", "text": done.stderr[-500:]}, "advice": []}
        content: dict[str, Any] = json.loads(result.read_text())
        return content


def follow(source: str, advice: dict[str, Any]) -> tuple[str, dict[str, str]] | None:
    """The script with an advice, and variables of its environment; None where a person has to do it."""
    if "__iter__" in advice["code"] or advice["change"].startswith("make the loader once"):
        return None
    more = {"OMP_NUM_THREADS": "1"} if "torch.set_num_threads(1)" in advice["code"] else {}
    if advice["rule"] == "main-threads":
        return source, more
    given = re.findall(r"(\w+)=(True|False|\d+)", advice["code"].partition("\n")[0])
    if not given or not advice["code"].startswith("DataLoader("):
        return None
    for name, value in given:
        source = re.sub(rf"(DataLoader\(.*), {name}=\w+", r"\1", source)
        source = re.sub(r"(= DataLoader\(.*)\)$", rf"\1, {name}={value})", source, flags=re.MULTILINE)
    return source, more


def time_script(script: Path, data: Path, more: dict[str, str]) -> float:
    """Samples a second that it prints."""
    done = subprocess.run(
        [sys.executable, str(script), str(data)], capture_output=True, text=True, check=True, env={**os.environ, **more}
    )
    return float(done.stdout.split()[-2])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--data", type=Path, help="where the scripts' data are, or are made")
    parser.add_argument("--only", nargs="*", default=list(STAGES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budget", type=int, default=20)
    options = parser.parse_args()
    folder = options.data or Path(tempfile.mkdtemp())
    if not (folder / "video.mp4").exists():
        subprocess.run([sys.executable, SCRIPTS / "make_data.py", images_folder(options.images), folder], check=True)
    print(
        f"{machine()}.\n\n| script | stage | doctor | first advice | said | got | within 20 % |\n{'|---' * 7}|",
        flush=True,
    )
    right = near = followed = 0
    for name in options.only:
        script = SCRIPTS / f"{name}.py"
        found = examine(script, folder, options.budget)
        stage, advice = found["verdict"]["stage"], (found["advice"] or [None])[0]
        right += stage == STAGES[name]
        change = said = got = within = "-"
        if advice is not None:
            gain = advice["measured"]
            change, said = advice["change"], "-" if gain is None else f"{gain:.2f}"
            done = follow(script.read_text(), advice)
            if done is not None and gain is not None:
                changed = folder / f"changed_{script.name}"
                changed.write_text(done[0])
                ratios = []
                for _ in range(options.rounds):
                    before = time_script(script, folder, {})
                    ratios.append(time_script(changed, folder, done[1]) / before)
                ratio = statistics.median(ratios)
                followed, got, within = followed + 1, f"{ratio:.2f}", "yes" if abs(ratio / gain - 1) <= 0.2 else "no"
                near += within == "yes"
        print(f"| {name} | {STAGES[name]} | {stage} | {change} | {said} | {got} | {within} |", flush=True)
    print(f"\nStage as expected: {right} of {len(options.only)}. Advice followed: {followed}, as said: {near}.")


if __name__ == "__main__":
    main()
