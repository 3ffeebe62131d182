"""Make `.venv` ready: an environment of this project's own, its pinned packages, and the native core.

Called by every word of the Makefile (`make demo`, `make test`, ...) before anything else, with any Python 3.11+
and nothing installed::

    python3 scripts/setup.py            # environment, packages, native core
    python3 scripts/setup.py --torch    # the same, and a torch
    python3 scripts/setup.py --frameworks    # the same, and the frameworks that the drop-in is tested with
    python3 scripts/setup.py --clients  # the same, and .venv-clients and .venv-composer with other libraries
    python3 scripts/setup.py --site     # the frameworks, and .venv-site with what makes and checks the site

Each step leaves a stamp in `.venv/.stamps` *after* it succeeded: a hash of what it was made from. A step whose stamp
fits is skipped, so that the second time takes a moment; one that failed or was interrupted has no stamp and is
done again. It installs nothing outside these environments and downloads only from the package index that pip and uv
are told of.
"""

from __future__ import annotations

import argparse
import configparser
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / ".stamps"
BORROWED = "penstock_borrowed_torch.pth"
BASE = "penstock_base.pth"
PYTHON_MIN = (3, 11)
TORCH_MIN = (2, 6)
TORCH_DISK_GB = 8


class SetupError(Exception):
    """One sentence that says what to install or do."""


def main() -> int:
    """Set up what the command line asks for; 0, or 1 after one clear sentence."""
    parser = argparse.ArgumentParser(description="Make .venv ready: packages and the native core.")
    parser.add_argument("--torch", action="store_true", help="also install torch, or borrow one that is there")
    parser.add_argument("--frameworks", action="store_true", help="also install what checks and tests use beside torch")
    parser.add_argument(
        "--package", metavar="P", help="as --frameworks, if the tests of this package import a framework"
    )
    parser.add_argument("--clients", action="store_true", help="also make the environments of `make test-clients`")
    parser.add_argument("--site", action="store_true", help="also make the environment of `make site`")
    arguments = parser.parse_args()
    arguments.frameworks |= bool(arguments.package) and imports_framework(ROOT / "tests" / arguments.package)
    try:
        check_machine()
        # Two words of the Makefile at once wait for one another; the lock goes with the process that holds it.
        lock = os.open(ROOT / "scripts", os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_environment()
        install_packages()
        if arguments.torch or arguments.frameworks or arguments.clients or arguments.site:
            provide_torch()
        if arguments.frameworks or arguments.clients or arguments.site:
            install_frameworks()
        build_native()
        if arguments.clients:
            make_layered_environment("clients")
            make_layered_environment("composer")
        if arguments.site:
            make_layered_environment("site")
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsetup: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


def imports_framework(tests: Path) -> bool:
    """Whether one of the tests of a package cannot be imported without torch."""
    imports = re.compile(r"^(import|from) (penstock\.)?(torch|torchvision|jax|lightning)\b", re.MULTILINE)
    return any(imports.search(path.read_text()) for path in tests.rglob("*.py"))


# ------------------------------------------------------------------------------------------------ the machine


def check_machine() -> None:
    """Refuse, in one sentence, a machine that lacks what only its owner can install."""
    if sys.version_info < PYTHON_MIN:
        restart_with_newer_python()
    if not shutil.which("cc"):
        raise SetupError("a C compiler is needed to link the native core; install one: apt-get install gcc libc6-dev")
    rust = re.search(r'^rust-version = "(\d+)\.(\d+)', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert rust
    wanted = f"Rust {rust[1]}.{rust[2]} or newer is needed to build the native core; install it from https://rustup.rs"
    if not (shutil.which("cargo") and shutil.which("rustc")):
        raise SetupError(f"{wanted} (no cargo on PATH)")
    told = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False, cwd=ROOT).stdout
    found = re.match(r"rustc (\d+)\.(\d+)", told)
    if not found or tuple(map(int, found.groups())) < tuple(map(int, rust.groups())):
        raise SetupError(f"{wanted} (found: {told.strip() or 'a rustc that does not run'})")


def restart_with_newer_python() -> None:
    """Run this script again with a newer Python from PATH, or say that there is none."""
    for name in ("python3.13", "python3.12", "python3.11"):
        path = shutil.which(name)
        if path and quiet([path, "-c", ""]):
            os.execv(path, [path, *sys.argv])  # noqa: S606  # a path found on PATH, our own arguments
    raise SetupError(f"Python 3.11 or newer is needed (this is {sys.version.split()[0]}): apt-get install python3.11")


# ------------------------------------------------------------------------------------------------ steps


def make_environment() -> None:
    """`.venv` with the pinned uv in it; one that is half made or broken is made anew."""
    uv = hash_of(ROOT / "requirements" / "uv.txt")
    if stamped("uv", uv) and PYTHON.exists():
        return
    if not works(PYTHON):
        say("creating .venv")
        shutil.rmtree(VENV, ignore_errors=True)
        create_environment(VENV)
    say("installing uv")
    install = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", "requirements/uv.txt"]
    with tempfile.TemporaryDirectory() as folder:
        run([*pip(Path(folder)), *install], "pip could not install uv")
    stamp("uv", uv)


def works(python: Path) -> bool:
    """Whether an environment's Python runs and is new enough."""
    check = f"import sys; sys.exit(sys.version_info < {PYTHON_MIN})"
    return python.exists() and quiet([python, "-c", check])


def create_environment(venv: Path) -> None:
    """Create an environment without pip: Debian keeps ensurepip in a package of its own (see :func:`pip`)."""
    if not quiet([sys.executable, "-m", "venv", "--without-pip", venv]):
        raise SetupError("this Python cannot make environments; install the rest of it: apt-get install python3-venv")


def pip(folder: Path) -> list[str | Path]:
    """The command that runs some pip on `.venv`: the base Python's, ensurepip's, or the one inside Debian's package.

    The last is fetched as a file and unpacked into ``folder``: no root, and nothing changes on the machine.
    """
    if quiet([sys.executable, "-c", "import pip; assert int(pip.__version__.split('.')[0]) >= 23"]):
        return [sys.executable, "-m", "pip", "--python", PYTHON]
    if quiet([PYTHON, "-m", "ensurepip"]):
        return [PYTHON, "-m", "pip"]
    lists = ["-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    lists += ["-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=1", "-qq"]
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    wheels: list[Path] = []
    if shutil.which("apt-get") and quiet(["apt-get", *lists, "update"]):
        quiet(["apt-get", *lists, "download", "python3-pip-whl"], cwd=folder)
        for package in folder.glob("python3-pip-whl*.deb"):
            quiet(["dpkg-deb", "-x", package, folder / "unpacked"])
        wheels = sorted(folder.glob("unpacked/usr/share/python-wheels/pip-*.whl"))
    if not wheels:
        raise SetupError("neither pip nor ensurepip is there; install one: apt-get install python3-venv")
    return [PYTHON, wheels[-1] / "pip"]


def install_packages() -> None:
    """The pinned packages that building, checking, testing and the demo need."""
    pins = ROOT / "requirements" / "dev.txt"
    key = hash_of(pins)
    if stamped("dev", key):
        return
    say("installing packages (about 300 MB)")
    uv_install("--require-hashes", "-r", str(pins))
    stamp("dev", key)


def provide_torch() -> None:
    """A torch: the one that the base Python imports if it is new enough, else the pinned one; and a torchvision."""
    pins = [ROOT / "requirements" / name for name in ("torch.txt", "torchvision.txt")]
    key = hash_of(*pins)
    if stamped("torch", key) and quiet([PYTHON, "-c", "import importlib.util as u; assert u.find_spec('torch')"]):
        return
    borrowed = next(VENV.glob("lib/python3.*/site-packages")) / BORROWED
    borrowed.unlink(missing_ok=True)
    folder = torch_that_is_there()
    if folder:
        # After the environment's own packages on sys.path: only what those lack is taken from there.
        say(f"using the torch that python3 already has, in {folder}")
        borrowed.write_text(f"{folder}\n")
    else:
        if not quiet([PYTHON, "-c", "import torch"]):
            announce_torch()
        uv_install("--require-hashes", "-r", str(pins[0]))
    if not quiet([PYTHON, "-c", "import torchvision"]):
        uv_install("--require-hashes", "--no-deps", "-r", str(pins[1]))
    stamp("torch", key)


def install_frameworks() -> None:
    """Lightning and Accelerate, pinned with everything they need but torch: that one is there, whichever it is."""
    pins = ROOT / "requirements" / "frameworks.txt"
    key = hash_of(pins)
    if stamped("frameworks", key):
        return
    say("installing frameworks to test with (about 50 MB)")
    uv_install("--require-hashes", "--no-deps", "-r", str(pins))
    stamp("frameworks", key)


def make_layered_environment(name: str) -> None:
    """`.venv-<name>`: the packages of requirements/<name>.txt, found before those of `.venv`, which does not change.

    So torch is installed once, and a library whose metadata ask for older packages has them without changing ours.
    """
    pins, venv = ROOT / "requirements" / f"{name}.txt", ROOT / f".venv-{name}"
    python = venv / "bin" / "python"
    key = hash_of(pins)
    if stamped(name, key) and python.exists():
        return
    if not works(python):
        say(f"creating {venv.name}")
        shutil.rmtree(venv, ignore_errors=True)
        create_environment(venv)
    (base,), (own,) = (list(folder.glob("lib/python3.*/site-packages")) for folder in (VENV, venv))
    # addsitedir also follows the .pth files there: penstock itself is found through one, and so is a borrowed torch.
    (own / BASE).write_text(f"import site; site.addsitedir({str(base)!r})\n")
    say(f"installing the packages of {venv.name}")
    # None of their dependencies: the pins are complete but for torch and torchvision, and those are in `.venv`.
    uv("pip", "sync", "--python", python, "--require-hashes", pins)
    stamp(name, key)


def torch_that_is_there() -> str | None:
    """The folder of a torch >= 2.6 that the Python running this script imports; None without one."""
    code = (
        "import sys, torch; v = tuple(map(int, torch.__version__.split('.')[:2]))\n"
        f"assert v >= {TORCH_MIN} and sys.version_info[:2] == {sys.version_info[:2]}\n"
        "import os; print(os.path.dirname(os.path.dirname(torch.__file__)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    return found.stdout.strip().splitlines()[-1] if found.returncode == 0 else None


def announce_torch() -> None:
    """Say what is about to come, before it comes; refuse a disk that cannot hold it."""
    say(
        "installing torch: its Linux wheel brings CUDA, about 5 GB on disk once unpacked; it is fetched once and "
        "kept in uv's cache (a torch >= 2.6 that python3 can already import would have been used instead)"
    )
    free = shutil.disk_usage(VENV).free / 1e9
    if free < TORCH_DISK_GB:
        raise SetupError(f"torch needs about {TORCH_DISK_GB} GB here while it unpacks, and {free:.1f} GB are free")


def build_native() -> None:
    """Compile the native core and install penstock itself, in place."""
    sources = [p for crate in ("core", "python") for p in sorted((ROOT / "native" / crate).rglob("*")) if p.is_file()]
    key = hash_of(ROOT / "Cargo.toml", ROOT / "Cargo.lock", ROOT / "pyproject.toml", *sources)
    is_built = stamped("native", key) and any((ROOT / "penstock").glob("_native*.so"))
    # The distribution was called `penstock`, like a stranger's: both would own the import and the command.
    has_namesake = any(VENV.glob("lib/python3.*/site-packages/penstock-[0-9]*.dist-info"))
    if is_built and not has_namesake:
        return
    if has_namesake:
        say("removing the distribution penstock, which is called penstock-data now")
        uv("pip", "uninstall", "--python", PYTHON, "penstock")
    say("building the native core")
    run(
        [VENV / "bin" / "maturin", "develop", "--release", "--locked", "--uv", "--quiet"],
        "the native core did not build",
    )
    stamp("native", key)


# ------------------------------------------------------------------------------------------------ means


def uv_install(*arguments: str) -> None:
    """Install into `.venv` with the uv inside it."""
    uv("pip", "install", "--python", PYTHON, *arguments)


def uv(*arguments: str | Path) -> None:
    """Run the uv inside `.venv`."""
    run([VENV / "bin" / "uv", "--quiet", *arguments], "uv could not install")


def environment() -> dict[str, str]:
    """The variables a tool is started with: uv is told what pip is told on this machine, and waits for large files."""
    env = {**os.environ, "VIRTUAL_ENV": str(VENV), "PATH": f"{VENV}/bin:{os.environ['PATH']}"}
    env.setdefault("UV_HTTP_TIMEOUT", "300")
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():
        env.setdefault("UV_SYSTEM_CERTS", "true")  # a company's own certificate is known there, and not to uv
    places = ["/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf", os.environ.get("PIP_CONFIG_FILE", "")]
    config = configparser.RawConfigParser()
    config.read(Path(place).expanduser() for place in places if place)
    options = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "cert": "SSL_CERT_FILE"}
    for option, variable in options.items():
        written = config.get("global", option, fallback="")
        told = os.environ.get("PIP_" + option.upper().replace("-", "_"), " ".join(written.split()))
        if told:
            env.setdefault(variable, told)
    return env


def run(command: list[str | Path], sorrow: str) -> None:
    """Run a command whose output the person sees; raise :class:`SetupError` where it fails."""
    if subprocess.run(command, check=False, cwd=ROOT, env=environment()).returncode:
        raise SetupError(f"{sorrow} (its reason stands above); run the same command again to go on")


def quiet(command: list[str | Path], cwd: Path = ROOT) -> bool:
    """Whether a command succeeds, its output unseen."""
    return not subprocess.run(command, check=False, cwd=cwd, capture_output=True).returncode


def hash_of(*paths: Path) -> str:
    """A hash of files: their names and bytes."""
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def stamped(step: str, key: str) -> bool:
    """Whether a step was done with exactly this to make it from."""
    path = STAMPS / step
    return path.is_file() and path.read_text() == key


def stamp(step: str, key: str) -> None:
    """Note that a step is done; whole or not at all."""
    STAMPS.mkdir(exist_ok=True)
    partial = STAMPS / f"{step}.partial"
    partial.write_text(key)
    partial.replace(STAMPS / step)


def say(text: str) -> None:
    """One line of progress."""
    print(f"==> {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
