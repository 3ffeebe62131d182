"""Claim: `penstock view` shows the first screen of 1,000,000 records in under a second, in less than 300 MB.

A pack of small JPEGs with labels is written once. Then, in each round, `penstock view` is started, and asked as its
page asks: the session, the first rows, 40 thumbnails by six connections. The first two lines of the table hold the
start of Python and the imports; the third is the first screen of a server that has only sent the page. After that,
2,000 thumbnails in 50 other places, as somebody who scrolls asks for them. Memory is that of the server's process
(PSS), pages of the pack included that it has mapped.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harness import arguments, machine, versions
from PIL import Image

from penstock.sample import Field, Schema
from penstock.stores.lmdb_pack.writer import LmdbWriter

RECORDS = 1_000_000
SCREEN = 40
CONNECTIONS = 6


def write_pack(path: Path, records: int) -> None:
    """Write small pictures of 100 classes."""
    rng = np.random.default_rng(0)
    pictures = []
    for number in range(500):
        file = io.BytesIO()
        pixels = rng.integers(0, 256, (4, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((32, 24 + number % 16)).save(file, "JPEG", quality=60)
        pictures.append(file.getvalue())
    schema = Schema({"image": Field("image"), "label": Field("label", tuple(f"class {i}" for i in range(100)))})
    writer = LmdbWriter(path, schema, "benches/viewer.py", overwrite=True)
    for number in range(records):
        fields = {"image": pictures[number % 500], "label": number % 100}
        writer.append(writer.prepare(f"{number % 100:02}/{number:07}.jpg", fields))
    writer.finish()
    writer.close()


def get(url: str) -> bytes:
    """The body of an answer."""
    with urllib.request.urlopen(url, timeout=60) as response:
        content: bytes = response.read()
        return content


def show_screen(url: str, indices: list[int]) -> None:
    """Ask for rows and thumbnails as the page does."""
    json.loads(get(f"{url}api/session"))
    rows = json.loads(get(f"{url}api/rows?start={indices[0]}&stop={indices[0] + 200}"))["rows"]
    assert len(rows) > 0
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for content in threads.map(lambda index: get(f"{url}api/thumb/{index}?side=192"), indices):
            assert content[:4] == b"RIFF"


def read_memory_mb(pid: int) -> float:
    """Proportional set size of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def measure(pack: Path, records: int) -> tuple[float, ...]:
    """Seconds to the address, to the first screen, of that alone; thumbnails a second; megabytes before and after."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "penstock", "view", str(pack), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        listening = time.perf_counter()
        get(url)
        asked = time.perf_counter()
        show_screen(url, list(range(SCREEN)))
        shown = time.perf_counter()
        first_mb = read_memory_mb(server.pid)
        places = np.random.default_rng(1).integers(0, records - SCREEN, 50).tolist()
        begun = time.perf_counter()
        for place in places:
            show_screen(url, list(range(place, place + SCREEN)))
        rate = len(places) * SCREEN / (time.perf_counter() - begun)
        last_mb = read_memory_mb(server.pid)
        server.terminate()
    return listening - start, shown - start, shown - asked, rate, first_mb, last_mb


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=5)
    with tempfile.TemporaryDirectory() as scratch:
        pack = Path(scratch) / "million.lmdb"
        write_pack(pack, RECORDS)
        measure(pack, RECORDS)  # the first reads files that are not in the page cache
        report([measure(pack, RECORDS) for _ in range(options.rounds)])


def report(measured: list[tuple[float, ...]]) -> None:
    """Print the table."""
    print(f"### The first screen of {RECORDS:,} records\n")
    print(f"{SCREEN} thumbnails; {machine()}; {versions('penstock-data', 'starlette', 'uvicorn', 'pillow')}.\n")
    print("| | median | all rounds |")
    print("|---|---|---|")
    names = (
        "from the command to the address, s", "from the command to the first screen, s", "first screen alone, s",
        "thumbnails a second, scrolling", "memory after the first screen, MB", "memory after 2,000 thumbnails, MB",
    )  # fmt: skip
    for name, values in zip(names, zip(*measured, strict=True), strict=True):
        ordered = sorted(values)
        print(f"| {name} | {ordered[len(ordered) // 2]:.2f} | {', '.join(f'{value:.2f}' for value in values)} |")


if __name__ == "__main__":
    main()
