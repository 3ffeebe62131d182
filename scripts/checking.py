"""What the checks of artefacts share: running a program, finding an artefact, a Python of Debian's in a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 600
NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's names of machines."""

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"

# Libraries of Debian 12 and newer that Python, NumPy and Pillow load; `t64` is the name in Debian 13 and newer.
LIBRARIES = (
    "libc6",
    "zlib1g",
    "libexpat1",
    "libssl3|libssl3t64",
    "libffi8",
    "libbz2-1.0",
    "liblzma5",
    "libzstd1",
    "libgcc-s1",
    "libstdc++6",
)


class CheckError(Exception):
    """What was found, in one sentence."""


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


def find_wheel(machine: str, libc: str = "manylinux") -> Path:
    """Return the wheel in dist/ for a machine."""
    wheels = list((ROOT / "dist").glob(f"*abi3*{libc}*_{machine}.whl"))
    if len(wheels) != 1:
        raise CheckError(f"dist/ must hold one {libc} wheel for {machine}, has {len(wheels)}: run `make wheels`")
    return wheels[0]


class Debian:
    """Packages of Debian for a machine, unpacked in a folder; nothing is installed.

    Parameters
    ----------
    machine : str
        As `uname -m` names it.
    suite : str, optional
        Of Debian, such as "sid"; by default the one that this machine's apt-get has.

    Raises
    ------
    CheckError
        Without apt-get or root.
    """

    def __init__(self, folder: Path, machine: str, suite: str | None = None) -> None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            raise CheckError("Debian's apt-get and root are needed")
        self.folder, self.architecture = folder, NAMES[machine]
        self._options: list[str | Path] = []
        folder.mkdir(parents=True)
        if suite is None:
            run(["dpkg", "--add-architecture", self.architecture])
        else:
            self._options = self._set_apart(suite)
        run(["apt-get", "update", "-qq", *self._options])

    def _set_apart(self, suite: str) -> list[str | Path]:
        """Options of apt-get for another suite, whose lists are kept apart from this machine's."""
        apt = self.folder / "apt"
        for part in ("lists/partial", "cache/archives/partial"):
            (apt / part).mkdir(parents=True)
        sources = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]).split()
        if not sources:
            raise CheckError("apt-get has no source of Debian's packages")
        (apt / "sources.list").write_text(f"deb [signed-by={KEYS}] {sources[0]} {suite} main\n")
        settings = {
            "Dir::Etc::SourceList": apt / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": apt / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": apt / "cache",
            "APT::Architectures": self.architecture,
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
        }
        return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]

    def unpack(self, *names: str) -> None:
        """Download packages and unpack them in the folder; of "a|b", the last that there is."""
        found = []
        for name in names:
            searched = [
                choice
                for choice in name.split("|")
                if run(["apt-cache", *self._options, "search", "--names-only", f"^{re.escape(choice)}$"])
            ]
            found += searched[-1:]
        packages = [f"{name}:{self.architecture}" for name in found]
        run(["apt-get", *self._options, "download", "-qq", *packages], cwd=self.folder)
        for package in self.folder.glob("*.deb"):
            run(["dpkg", "-x", package, self.folder])
            package.unlink()

    def unpack_python(self, version: str = "") -> str:
        """Unpack a Python, by default Debian's own, and what it loads; returns its version, as "3.13"."""
        if not version:
            depends = run(["apt-cache", *self._options, "depends", f"python3-minimal:{self.architecture}"])
            match = re.search(r"Depends: python(3\.\d+)-minimal", depends)
            if match is None:
                raise CheckError(f"apt-cache knows no python3-minimal:{self.architecture}")
            version = match[1]
        parts = (f"python{version}-minimal", f"libpython{version}-minimal", f"libpython{version}-stdlib")
        self.unpack(*parts, *LIBRARIES)
        return version
