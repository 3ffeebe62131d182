"""The scripts of `examples/`, as modules."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["EXAMPLES", "import_example", "run_example"]

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"


def import_example(name: str) -> Any:
    """Import a script, which finds what lies beside it as when it is run."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def run_example(name: str, *options: str) -> str:
    """Run a script to its end; what it printed."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
