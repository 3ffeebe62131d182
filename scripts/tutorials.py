"""Run the tutorials, and record what they print and draw in docs/tutorials/output (`make tutorials ARGS="ddp"`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SCRIPTS: Final = ROOT / "examples" / "tutorials"
OUTPUT: Final = ROOT / "docs" / "tutorials" / "output"
CLIENTS: Final = {"with_timm", "with_transformers", "notebook"}
RANKS: Final = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]


def main() -> None:
    """Record those that are named, or all of them."""
    OUTPUT.mkdir(exist_ok=True)
    scripts = sorted(path for path in SCRIPTS.iterdir() if path.suffix in {".py", ".ipynb"})
    for script in scripts:
        if len(sys.argv) == 1 or script.stem in sys.argv[1:]:
            record(script)


def record(script: Path) -> None:
    """Run a script in an empty folder; keep its standard output and its pictures."""
    name = script.stem
    python = str(ROOT / (".venv-clients" if name in CLIENTS else ".venv") / "bin" / "python")
    command = [python, str(ROOT / "tests" / "clients" / "notebook_run.py")] if name == "notebook" else [python]
    command += [*(RANKS if name == "ddp" else []), str(script)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{name} failed:\n{done.stderr}")
        (OUTPUT / f"{name}.txt").write_text(done.stdout)
        for picture in sorted(Path(folder).glob(f"{name}*.jpg")):
            shutil.copy(picture, OUTPUT / picture.name)
    print(f"{name}: {len(done.stdout.splitlines())} lines")


if __name__ == "__main__":
    main()
