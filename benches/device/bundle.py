"""Makes the folder that is carried to a machine with a device: ``device_session.sh build FOLDER``.

::

    base.000 base.001 ...      penstock's wheel and the small packages that it needs, kernels, photographs, malformed
                               files, tests, this package
    extras.000 ...             with --rivals: other libraries, scikit-image for some tests, cuda-bindings
    SHA256SUMS, device_session.sh

Parts are pieces of a compressed tar file, for ways that carry so many bytes at once. All of ``base`` is needed. Without
``extras``, a session skips the other libraries.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import penstock as ps

__all__ = ["Contents", "build", "read_requirements", "split_file", "write_parts", "write_work"]

ROOT: Final = Path(__file__).resolve().parents[2]
ARCHITECTURES: Final = ("sm_80", "sm_90", "sm_100")
MOST_PHOTOGRAPHS: Final = 400
PLATFORMS: Final = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux_2_5",
    "manylinux1",
)
SCRIPT: Final = "benches/device_session.sh"
COPIED: Final = (
    "pyproject.toml",
    "benches/harness.py",
    "benches/peers/serve.py",
    "benches/peers/ffcv_files.py",
    SCRIPT,
)


@dataclass(frozen=True)
class Contents:
    """What is carried.

    Parameters
    ----------
    photographs : Path, optional
        A folder of JPEGs, the first 400 of which are packed; by default those of the demo.
    malformed : Path, optional
        A folder of malformed JPEGs; by default those that the tests make.
    python : str
        Version of Python on the machine, such as "3.12".
    wheel : Path, optional
        A wheel of penstock; by default one is built.
    with_rivals : bool
        Whether other libraries are carried too.
    part_nbytes : int
        Largest size of a part.
    """

    photographs: Path | None = None
    malformed: Path | None = None
    python: str = "3.12"
    wheel: Path | None = None
    with_rivals: bool = False
    part_nbytes: int = 40_000_000


def build(folder: Path, contents: Contents) -> None:
    """Write the folder; what it held of an earlier build is deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("base.[0-9]*"), *folder.glob("extras.[0-9]*")):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as temporary:
        base, extras = Path(temporary) / "base", Path(temporary) / "extras"
        write_work(base, contents.photographs, contents.malformed)
        (base / "wheels").mkdir()
        shutil.copy(contents.wheel or _build_wheel(Path(temporary) / "built"), base / "wheels")
        _download("device", base / "wheels", contents.python)
        _compile_kernels(base / "cache")
        parts = write_parts(base, folder, contents.part_nbytes)
        if contents.with_rivals:
            _download("device_rivals", extras / "wheels", contents.python)
            parts += write_parts(extras, folder, contents.part_nbytes)
    sums = [f"{_digest(part)}  {part.name}\n" for part in parts]
    (folder / "SHA256SUMS").write_text("".join(sums))
    shutil.copy(ROOT / SCRIPT, folder)
    for part in parts:
        print(f"{part}: {part.stat().st_size / 1e6:.1f} MB")


def write_work(work: Path, photographs: Path | None = None, malformed: Path | None = None) -> None:
    """Write what stages read: photographs.lmdb, malformed, tests and this package."""
    for name in COPIED:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, work / name)
    for name in ("benches/device", "tests"):  # all tests: those of a device import from others
        shutil.copytree(ROOT / name, work / name, ignore=_leave_out)
    with tempfile.TemporaryDirectory() as chosen:
        source = photographs or _write_demo_photographs(Path(chosen) / "demo")
        _choose(source, Path(chosen) / "some")
        ps.pack(Path(chosen) / "some", work / "photographs.lmdb", index="tiles")
    if malformed is not None:
        shutil.copytree(malformed, work / "malformed")
    else:
        from tests.hostile.gallery import write_gallery

        (work / "malformed").mkdir()
        write_gallery(work / "malformed")


def _leave_out(folder: str, names: Sequence[str]) -> set[str]:
    """Of a copy: what is not Python."""
    return {name for name in names if Path(folder, name).is_file() and not name.endswith(".py")} | {"__pycache__"}


def _write_demo_photographs(folder: Path) -> Path:
    from penstock.demo.photographs import CLASSES, write_photographs

    each = -(-MOST_PHOTOGRAPHS // len(CLASSES))
    return write_photographs(folder, train=each, held_out=1) / "train"


def _choose(source: Path, target: Path) -> None:
    """Copy the first photographs of a folder, a sub-folder a class."""
    files = sorted(path for path in source.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})
    if not files:
        raise SystemExit(
            f"the folder of photographs {source} has no file .jpg or .jpeg; pass another with --photographs"
        )
    for path in files[:MOST_PHOTOGRAPHS]:
        name = path.parent.name if path.parent != source else "all"
        (target / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target / name / path.name)


def _build_wheel(folder: Path) -> Path:
    maturin = str(Path(sys.executable).with_name("maturin"))
    command = [maturin, "build", "--release", "--locked", "--quiet", "--out", str(folder)]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(command, cwd=ROOT, check=True, env=environment)
    (wheel,) = folder.glob("*abi3*.whl")
    return wheel


def _download(requirements: str, target: Path, python: str) -> None:
    """Download pinned wheels for Linux on x86-64 with pip, which compares their hashes."""
    target.mkdir(parents=True, exist_ok=True)
    file = ROOT / "requirements" / f"{requirements}.txt"
    platforms = [word for platform in PLATFORMS for word in ("--platform", f"{platform}_x86_64")]
    version = ["--python-version", python, "--implementation", "cp"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as chosen:
        chosen.write(read_requirements(file.read_text(), python))
        chosen.flush()
        options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--disable-pip-version-check"]
        command = [*_find_pip(), "download", *options, *version, *platforms, "-d", str(target), "-r", chosen.name]
        subprocess.run(command, check=True)


def read_requirements(text: str, python: str) -> str:
    """The lines of a file of pins that hold for a version of Python on Linux.

    pip compares markers with the Python that runs it, not with ``--python-version``.
    """
    from packaging.markers import Marker

    kept, holds = [], True
    environment = {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux",
        "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix",
        "platform_python_implementation": "CPython", "implementation_name": "cpython",
    }  # fmt: skip
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            pin, _, marker = line.removesuffix("\\").rstrip().partition(" ; ")
            holds = not marker or Marker(marker).evaluate(environment)
            kept += [f"{pin} \\"] if holds else []
        elif holds and not line.lstrip().startswith("#"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def _find_pip() -> list[str]:
    for python in (sys.executable, shutil.which("python3")):
        if (
            python
            and subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
        ):
            return [python, "-m", "pip"]
    raise SystemExit("downloading wheels needs pip: apt-get install python3-pip")


def _compile_kernels(cache: Path) -> None:
    """Compile the kernels into a cache, by a process: where it is, is read from the environment."""
    code = (
        "import sys\n"
        "from penstock.torch.cuda import compiler\n"
        "for architecture in sys.argv[1:]:\n"
        "    print(architecture, len(compiler.load_or_compile(architecture)), 'bytes')\n"
    )
    cache.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", code, *ARCHITECTURES], env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        # The machine with the device compiles them itself, in about a second each.
        print(f"the kernels were not compiled here: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    print(done.stdout, end="")


def write_parts(content: Path, folder: Path, part_nbytes: int) -> list[Path]:
    """Write ``NAME.000`` and so on, pieces of a compressed tar file of a folder's content."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = content.with_suffix(".tar.gz")
    with tarfile.open(whole, "w:gz", compresslevel=6) as archive:
        archive.add(content, ".")
    parts = split_file(whole, folder / content.name, part_nbytes)
    whole.unlink()
    return parts


def split_file(whole: Path, target: Path, part_nbytes: int) -> list[Path]:
    """Divide a file into ``TARGET.000``, ``TARGET.001`` and so on."""
    parts: list[Path] = []
    with whole.open("rb") as file:
        while piece := file.read(part_nbytes):
            parts.append(target.with_name(f"{target.name}.{len(parts):03}"))
            parts[-1].write_bytes(piece)
    return parts


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
