"""Each tutorial is a short script of one file that runs in an empty folder, learns, and prints what its page shows."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.effort import mark_slow
from tests.examples.example_scripts import EXAMPLES, fork_example
from tests.examples.tutorial_runs import OUTPUT, SCRIPTS, assert_as_recorded, assert_learned, folder_for

torch: Any = pytest.importorskip("torch")
pytest.importorskip("skimage")
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # of Lightning itself

PAGES: Final = OUTPUT.parent
NAMES: Final = sorted(path.stem for path in SCRIPTS.iterdir() if path.suffix in {".py", ".ipynb"})
IN_CLIENTS: Final = {"with_timm", "with_transformers", "notebook"}
"""Run by tests/clients/test_tutorials.py, where their libraries are."""
LIBRARIES: Final = {"containers": "h5py", "with_accelerate": "accelerate", "with_lightning": "pytorch_lightning"}


HERE: Final = [name for name in NAMES if name not in IN_CLIENTS | {"ddp"}]
QUICK: Final = ("arrays", "classification", "containers", "table")
"""What is longer is for `make test-slow`; the examples in `examples/` have quick runs in tests of their own."""


@pytest.mark.parametrize("name", mark_slow(HERE, QUICK))
def test_prints_what_its_page_shows(name: str, tmp_path: Path) -> None:
    """The lines are those recorded, resumed batches are all the same, and the network has learned."""
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])

    printed = fork_example(f"tutorials/{name}", tmp_path / "printed", folder=folder_for(tmp_path), with_errors=False)

    assert_as_recorded(name, printed)
    assert_learned(printed)


@pytest.mark.slow
def test_two_ranks(tmp_path: Path) -> None:
    """torchrun starts the script for several ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", "2", str(SCRIPTS / "ddp.py")]

    done = subprocess.run(
        command,
        cwd=folder_for(tmp_path),
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert_as_recorded("ddp", done.stdout)
    assert_learned(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_page_shows_script_output_and_pictures(name: str) -> None:
    """A page includes its script and its output, and links to files that exist; pictures of its script are shown."""
    page = (PAGES / f"{name}.md").read_text()
    shown = set(re.findall(r"^```\{literalinclude\} (\S+)$", page, re.MULTILINE))
    linked = [target for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page) if "/problems/" not in target]
    script = f"../../examples/tutorials/{name}.py"

    assert f"output/{name}.txt" in shown
    assert script in shown or name == "notebook"
    assert all((PAGES / target).exists() for target in shown | set(linked))
    assert {path.name for path in OUTPUT.glob(f"{name}[.-]*.jpg")} <= {Path(target).name for target in linked}
    assert f"({name}.md)" in (PAGES / "index.md").read_text()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "notebook"])
def test_script_is_short_and_alone(name: str) -> None:
    """At most 80 statements, in lines that fit the site, and no module of the repository that is not installed."""
    text = (SCRIPTS / f"{name}.py").read_text()
    lines = text.splitlines()
    beside = {path.stem for folder in (EXAMPLES, SCRIPTS) for path in folder.glob("*.py")}
    imported = {match[1] for line in lines if (match := re.match(r"(?:from|import) (\w+)", line))}

    assert sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text))) <= 80
    assert max(map(len, lines)) <= 88
    assert not imported & beside
