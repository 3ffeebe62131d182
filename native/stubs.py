"""Write ``penstock/_native.pyi`` from the native module, or tell how it differs (``--check``).

PyO3 leaves the signatures and docstrings of the module in the built library; ``maturin generate-stubs`` reads them. It
knows no exceptions made by ``create_exception!``, so these are added from the imported module, which must be built from
the same sources (``make install``).
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock import _native

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "penstock" / "_native.pyi"
HEADER = """\
# Made by native/stubs.py from the native module; do not edit.
# ruff: noqa: A002  (`filter` is the word for it)
"""
#: What maturin writes where it does not know all names.
INCOMPLETE = "def __getattr__(name: str) -> Incomplete: ...\n"


def generated() -> str:
    """Build the module as ``make install`` does and describe it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "maturin",
            "generate-stubs",
            "--quiet",
            "--profile",
            "release",
            "--out",
            folder,
        ]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  the build tool of this very environment
        text = (Path(folder) / "penstock" / "_native.pyi").read_text()
    if not text.endswith(INCOMPLETE):
        sys.exit("stubs: maturin now describes the exceptions too: native/stubs.py no longer needs to")
    text = text.removesuffix(INCOMPLETE).replace("from _typeshed import Incomplete, ", "from _typeshed import ")
    names = sorted(name for name in vars(_native) if not name.startswith("_"))
    exceptions = [name for name in names if isinstance(getattr(_native, name), type)]
    missing = [
        name for name in names if name not in exceptions and f"def {name}(" not in text and f"\n{name}:" not in text
    ]
    if missing:
        sys.exit(f"stubs: the imported module has {missing}, its sources have not: run `make install`")
    docstring, _, body = text.partition('"""\n\n')
    head, _, functions = body.partition("\n\n")
    classes = "\n\n".join(_class(getattr(_native, name)) for name in exceptions)
    return _formatted(f'{HEADER}{docstring}"""\n\n{head}\n\n__all__ = {names}\n\n{classes}\n\n{functions}')


def _class(exception: type[Exception]) -> str:
    bases = ", ".join(base.__name__ for base in exception.__bases__)
    return f'class {exception.__name__}({bases}):\n    """{exception.__doc__}"""\n'


def _formatted(text: str) -> str:
    for command in (
        ["format"],
        ["check", "--select", "I,UP,PYI,RUF022", "--ignore", "PYI021", "--fix", "--quiet"],
        ["format"],
    ):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603  as above
    return text


def main() -> None:
    """Write the stub, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the stub is not up to date")
    wanted = generated()
    if not parser.parse_args().check:
        STUB.write_text(wanted)
        return
    found = STUB.read_text() if STUB.exists() else ""
    if found != wanted:
        lines = difflib.unified_diff(found.splitlines(True), wanted.splitlines(True), "committed", "generated")
        sys.stdout.writelines(lines)
        sys.exit("stubs: penstock/_native.pyi is out of date: run `python native/stubs.py`")


if __name__ == "__main__":
    main()
