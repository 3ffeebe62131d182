"""Check the wheels in `dist/` that this machine cannot install: those for arm64, and those for musl.

The arm64 wheel is imported by Debian's Python for arm64 under qemu, and must decode, resize and normalise photographs
to the same bytes as this machine. The modules of both musl wheels are loaded by Debian's musl, which must find every
symbol but Python's. `check_wheels.py` calls both.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from checking import LIMIT_S, ROOT, CheckError, Debian, find_wheel, run

ARM64 = "aarch64"

DIGEST = """
import hashlib
import sys
from pathlib import Path
import numpy as np
import penstock as ps
from penstock import _native
from penstock import transforms as T
digest = hashlib.sha256()
for path in sorted(Path(sys.argv[1]).rglob("*.jpg")):
    picture = ps.decode(path.read_bytes())
    digest.update(repr(picture.shape).encode() + picture.tobytes())
floats = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("CHW", "float32")]
jitter = T.ColorJitter(0.4, 0.4, 0.4, 0.1)
turned = T.RandomPerspective(p=1.0, filter="bilinear")
crop = T.RandomResizedCrop(96)
for ops in ([crop, T.HorizontalFlip(), *floats], [crop, jitter], [crop, turned], [T.Resize(64)]):
    store = ps.open(sys.argv[1])
    square = [T.CenterCrop(64)] if len(ops) == 1 else []
    dataset = ps.StoreDataset(store, fields=("image", "label"), transform=T.Pipeline([T.Decode(), *ops, *square]))
    for images, _ in ps.DataLoader(dataset, batch_size=20, shuffle=True, workers="serial", seed=0):
        digest.update(images.tobytes())
deep = (np.arange(48 * 64).reshape(48, 64) * 2029 % 65536).astype(np.uint16)
digest.update(T.Pipeline([T.Decode(mode="I;16"), T.Resize((31, 17))])(ps.encode(deep, "png")).tobytes())
print(",".join(_native.features()), digest.hexdigest())
"""


def check_arm64(folder: Path, python: Path) -> None:
    """Compare what the arm64 wheel makes of photographs with what this machine's does."""
    qemu = shutil.which("qemu-aarch64-static")
    if qemu is None or os.uname().machine == ARM64:
        print("skipped: the arm64 wheel runs only with qemu-aarch64-static", file=sys.stderr)
        return
    if not list((ROOT / "dist").glob(f"*manylinux*_{ARM64}.whl")):
        print("skipped: dist/ has no arm64 wheel, since Rust's library for it could not be had", file=sys.stderr)
        return
    system = folder / "arm64"
    try:
        version = Debian(system, ARM64).unpack_python()
    except CheckError as error:
        print(f"skipped: the arm64 wheel, since Debian's Python for arm64 cannot be had: {error}", file=sys.stderr)
        return
    site = folder / "site"
    platforms = [part for glibc in ("2014", "_2_17", "_2_28") for part in ("--platform", f"manylinux{glibc}_{ARM64}")]
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
        "--python-version",
        version,
        *platforms,
    ]
    run([python, "-m", "pip", "install", *options, "--target", site, find_wheel(ARM64)])
    # No threads: programs that are linked dynamically hang in them under Debian 12's qemu.
    settings = {"PYTHONPATH": str(site), "OPENBLAS_NUM_THREADS": "1"}
    emulated = [qemu, "-L", system, system / "usr" / "bin" / f"python{version}", "-c", DIGEST, folder / "photos"]
    start = time.monotonic()
    features, found = run(emulated, cwd=folder, **settings).split()
    wanted = run([python, "-c", DIGEST, folder / "photos"], cwd=folder).split()[1]
    if found != wanted or "neon" not in features:
        raise CheckError(f"the arm64 wheel ({features}) gives {found}, this machine {wanted}")
    print(f"arm64: {features}: the same bytes under qemu, in {time.monotonic() - start:.0f} s")


def check_musl(folder: Path, machine: str) -> None:
    """Load the module of the musl wheel by Debian's musl, which names what it does not find."""
    if not list((ROOT / "dist").glob(f"*musllinux*_{machine}.whl")):
        print(
            f"skipped: dist/ has no musl wheel for {machine}: Rust's library for it could not be had", file=sys.stderr
        )
        return
    system = folder / f"musl-{machine}"
    try:
        loader = fetch_musl(system, machine)
    except CheckError as error:
        print(f"skipped: the musl wheel for {machine}: {error}", file=sys.stderr)
        return
    with zipfile.ZipFile(find_wheel(machine, "musllinux")) as wheel:
        module = wheel.extract("penstock/_native.abi3.so", system)
    command = [*loader, "--list", module]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False).stderr.splitlines()
    # There is no Python, so its symbols are missing.
    lacking = [line for line in listed if not re.search(r": _?Py\w+: symbol not found$", line)]
    if lacking or not listed:
        raise CheckError(
            f"the musl wheel for {machine} cannot be loaded: {lacking or 'musl lacks no symbol of Python'}"
        )
    print(f"musl, {machine}: all symbols but {len(listed)} of Python are found")


def fetch_musl(system: Path, machine: str) -> list[str | Path]:
    """Unpack Debian's musl in a folder; returns the command of its loader."""
    emulator = "" if machine == os.uname().machine else shutil.which(f"qemu-{machine}-static")
    if emulator is None:
        raise CheckError(f"qemu-{machine}-static is needed")
    Debian(system, machine).unpack("musl")
    return [*([emulator] if emulator else []), *system.glob("**/libc.so")]
