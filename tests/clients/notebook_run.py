"""Run a notebook in a kernel of this environment, and print its code with what each cell printed and returned.

::

    python tests/clients/notebook_run.py examples/tutorials/notebook.ipynb
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

__all__ = ["run_notebook"]


def run_notebook(path: Path) -> str:
    """The code cells of a notebook, each followed by its standard output and its value as comments.

    It runs in the current folder, which is written as ``~``.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell raises.
    """
    notebook: Any = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    parts: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        parts.append(f"# In [{cell.execution_count}]\n{cell.source}\n")
        printed = [each.text for each in cell.outputs if each.output_type == "stream" and each.name == "stdout"]
        values = [each.data["text/plain"] for each in cell.outputs if each.output_type == "execute_result"]
        shown = "\n".join(["".join(printed).rstrip(), *values]).strip()
        if shown:
            parts.append("\n".join(f"# {line}".rstrip() for line in shown.splitlines()) + "\n")
    return "\n".join(parts).replace(str(Path.cwd()), "~")


if __name__ == "__main__":
    sys.stdout.write(run_notebook(Path(sys.argv[1])))
