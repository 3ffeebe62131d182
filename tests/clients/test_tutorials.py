"""The tutorials on other libraries, and the notebook, learn and print what their pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.notebook_run import run_notebook
from tests.examples.example_scripts import fork_example
from tests.examples.tutorial_runs import SCRIPTS, assert_as_recorded, assert_learned, folder_for


@pytest.mark.parametrize("name", ["with_timm", "with_transformers"])
def test_prints_what_its_page_shows(name: str, tmp_path: Path) -> None:
    """The lines are those recorded, resumed batches are all the same, and the network has learned."""
    folder = folder_for(tmp_path)

    printed = fork_example(f"tutorials/{name}", tmp_path / "printed", folder=folder, with_errors=False)

    assert_as_recorded(name, printed)
    assert_learned(printed)


def test_notebook() -> None:
    """Each cell prints what is recorded; an interrupted one leaves no worker."""
    printed = run_notebook(SCRIPTS / "notebook.ipynb")

    assert_as_recorded("notebook", printed)
    assert_learned(printed)
    assert "# 0 worker processes are left" in printed
