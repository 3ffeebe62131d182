"""Check the wheels in `dist/`: `make test-wheels`, after `make wheels`.

The wheel of this machine is installed in an empty environment, without Rust or a compiler on PATH, and runs the first
example of README.md. The arm64 wheel is imported by Debian's Python for arm64 under qemu, and must decode, resize and
normalise photographs to the same bytes as this machine. The modules of both musl wheels are loaded by Debian's musl,
which must find every symbol but Python's. Without Debian, root and qemu these parts are skipped, with a message.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 600
ARM64 = "aarch64"
# Libraries of Debian 12 and 13 that this Python, NumPy and Pillow load; `t64` is Debian 13's name.
LIBRARIES = (
    "libc6",
    "zlib1g",
    "libexpat1",
    "libssl3|libssl3t64",
    "libffi8",
    "libbz2-1.0",
    "liblzma5",
    "libgcc-s1",
    "libstdc++6",
)

PHOTOGRAPHS = """
import sys
from pathlib import Path
import numpy as np
from PIL import Image
draw = np.random.default_rng(0)
for number in range(160):
    height, width = (int(side) for side in draw.integers(120, 400, size=2))
    ramp = np.linspace(draw.integers(0, 120, 3), draw.integers(120, 255, 3), width)
    picture = ramp + draw.normal(0, 12, (height, width, 3))
    path = Path(sys.argv[1], "cat" if number % 2 else "dog", f"{number}.jpg")
    path.parent.mkdir(parents=True, exist_ok=True)
    form = {"quality": 60 + number % 40, "subsampling": number % 3, "progressive": number % 5 == 0}
    Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(path, **form)
"""

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


class CheckError(Exception):
    """What was found, in one sentence."""


def main() -> int:
    """Check all wheels; 1 and a sentence if one is missing or wrong."""
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-wheels-") as folder:
            python = check_native(Path(folder))
            check_arm64(Path(folder), python)
            for machine in (ARM64, "x86_64"):
                check_musl(Path(folder), machine)
    except CheckError as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    return 0


def check_native(folder: Path) -> Path:
    """Install this machine's wheel and run README's first example; returns the environment's Python."""
    run([sys.executable, "-m", "venv", folder / "env"])
    python = folder / "env" / "bin" / "python"
    # Nothing but this environment: neither Rust nor a compiler.
    path = {"PATH": str(python.parent)}
    options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    start = time.monotonic()
    run([python, "-m", "pip", "install", *options, find_wheel(os.uname().machine)], **path)
    installed_s = time.monotonic() - start
    run([python, "-c", PHOTOGRAPHS, folder / "photos"], cwd=folder, **path)
    example = re.search(r"## Twenty lines.*?```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    if example is None:
        raise CheckError("README.md has no example under '## Twenty lines'")
    end = "\nassert images.shape[1:] == (3, 224, 224) and images.dtype == 'float32', images.shape\n"
    start = time.monotonic()
    run([python, "-c", example[1] + end], cwd=folder, **path)
    ran_s = time.monotonic() - start
    print(f"{os.uname().machine}: installed in {installed_s:.0f} s, README's example ran in {ran_s:.0f} s")
    return python


def check_arm64(folder: Path, python: Path) -> None:
    """Compare what the arm64 wheel makes of photographs with what this machine's does."""
    qemu = shutil.which("qemu-aarch64-static")
    if qemu is None or shutil.which("apt-get") is None or os.geteuid() != 0 or os.uname().machine == ARM64:
        print("skipped: the arm64 wheel runs only with qemu-aarch64-static, Debian's apt-get and root", file=sys.stderr)
        return
    if not list((ROOT / "dist").glob(f"*manylinux*_{ARM64}.whl")):
        print("skipped: dist/ has no arm64 wheel, since Rust's library for it could not be had", file=sys.stderr)
        return
    system = folder / "arm64"
    try:
        version = fetch_python(system)
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


def fetch_python(system: Path) -> str:
    """Unpack Debian's Python for arm64, and the libraries that it loads, in a folder; returns its version."""
    run(["dpkg", "--add-architecture", "arm64"])
    run(["apt-get", "update", "-qq"])
    found = re.search(r"Depends: python(3\.\d+)-minimal", run(["apt-cache", "depends", "python3-minimal:arm64"]))
    if found is None:
        raise CheckError("apt-cache knows no python3-minimal:arm64")
    version = found[1]
    names = [f"python{version}-minimal", f"libpython{version}-minimal", f"libpython{version}-stdlib"]
    for library in LIBRARIES:
        known = [
            name for name in library.split("|") if run(["apt-cache", "search", "--names-only", f"^{re.escape(name)}$"])
        ]
        names += known[-1:]
    system.mkdir()
    run(["apt-get", "download", "-qq", *(f"{name}:arm64" for name in names)], cwd=system)
    for package in system.glob("*.deb"):
        run(["dpkg", "-x", package, system])
    return version


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
    if emulator is None or shutil.which("apt-get") is None or os.geteuid() != 0:
        raise CheckError(f"qemu-{machine}-static, Debian's apt-get and root are needed")
    system.mkdir()
    run(["apt-get", "download", "-qq", "musl:" + {ARM64: "arm64", "x86_64": "amd64"}[machine]], cwd=system)
    for package in system.glob("*.deb"):
        run(["dpkg", "-x", package, system])
    return [*([emulator] if emulator else []), *system.glob("**/libc.so")]


def find_wheel(machine: str, libc: str = "manylinux") -> Path:
    """Return the wheel in dist/ for a machine."""
    wheels = list((ROOT / "dist").glob(f"*{libc}*_{machine}.whl"))
    if len(wheels) != 1:
        raise CheckError(f"dist/ must hold one {libc} wheel for {machine}, has {len(wheels)}: run `make wheels`")
    return wheels[0]


def run(command: list[str | Path], cwd: Path | None = None, **environment: str) -> str:
    """Run a program without this checkout's variables; returns its output."""
    base = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CARGO", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=base | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise CheckError(f"{command[0]} ended with {done.returncode}: {' '.join(done.stderr.split()[-60:])}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
