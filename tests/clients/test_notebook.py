"""A kernel of Jupyter: cells that are interrupted, classes of the notebook in workers, and what is shown."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pack.images import make_photos

manager = pytest.importorskip("jupyter_client.manager")

_PATIENCE_S = 120
DATASET = """
import multiprocessing, time
import numpy as np
import penstock as ps
import penstock.torch as pt
import torch

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.01)
        return index
"""
LOOP = """
loader = {0}.DataLoader(Slow(), 10, num_workers=2, workers="processes")
for batch in loader:
    print("a batch", flush=True)
"""


class Kernel:
    """A kernel in a process of its own, and what its cells give."""

    def __init__(self) -> None:
        self.manager, self.client = manager.start_new_kernel(kernel_name="python3")

    def begin(self, code: str) -> str:
        """Run a cell; its number."""
        cell: str = self.client.execute(code)
        return cell

    def follow(self, cell: str, until: str = "") -> list[tuple[str, dict[str, Any]]]:
        """What a cell gives, up to its end or to a text."""
        found = []
        while True:
            message = self.client.get_iopub_msg(timeout=_PATIENCE_S)
            if message["parent_header"].get("msg_id") != cell:
                continue
            kind, content = message["msg_type"], message["content"]
            found.append((kind, content))
            if content.get("execution_state") == "idle" or (until and until in content.get("text", "")):
                return found

    def run(self, code: str) -> str:
        """The text and the error of a cell."""
        parts = self.follow(self.begin(code))
        return "".join(content.get("text", content.get("evalue", "")) for _, content in parts).strip()


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    """A kernel with a dataset of its own."""
    started = Kernel()
    try:
        assert started.run(DATASET) == ""
        yield started
    finally:
        started.client.stop_channels()
        started.manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("package", ["ps", "pt"])
def test_an_interrupted_cell_leaves_no_worker(kernel: Kernel, package: str) -> None:
    """Classes of the notebook work in forked workers, which have ended when the cell has; the loader goes on."""
    cell = kernel.begin(LOOP.format(package))
    kernel.follow(cell, until="a batch")

    kernel.manager.interrupt_kernel()

    assert [content["ename"] for kind, content in kernel.follow(cell) if kind == "error"] == ["KeyboardInterrupt"]
    assert kernel.run("print(len(multiprocessing.active_children()))") == "0"
    assert kernel.run("for batch in loader: break\nprint(len(batch))") == "10"
    kernel.run("del batch")


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_classes_of_the_notebook_are_refused_where_they_cannot_be_imported(kernel: Kernel, method: str) -> None:
    """One sentence, in place of the end of each worker."""
    found = kernel.run(f"next(iter(pt.DataLoader(Slow(), 10, num_workers=2, multiprocessing_context={method!r})))")

    assert "Slow is defined in a notebook or an interpreter" in found


def test_stores_and_batches_are_shown(kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A store has a page, a batch a picture, and progress one output that is replaced."""
    folder = tmp_path_factory.mktemp("notebook")
    kernel.run(
        f"from PIL import Image\nimport os\nos.makedirs({str(folder / 'photos' / 'cat')!r})\n"
        f"Image.new('RGB', (40, 30)).save({str(folder / 'photos' / 'cat' / '1.png')!r})"
    )

    (page,) = [
        content["data"]
        for kind, content in kernel.follow(kernel.begin(f"ps.open({str(folder / 'photos')!r})"))
        if kind == "execute_result"
    ]
    (picture,) = [
        content["data"]
        for kind, content in kernel.follow(kernel.begin("ps.show([np.zeros((2, 8, 8, 3), np.uint8)])"))
        if kind == "execute_result"
    ]
    shown = [
        kind
        for kind, _ in kernel.follow(
            kernel.begin("for _ in ps.DataLoader(Slow(), 200).progress(period_s=0.001):\n    pass")
        )
    ]

    assert "data:image/jpeg;base64," in page["text/html"]
    assert page["text/plain"].startswith("<FilesStore")
    assert picture.keys() & {"image/png", "image/jpeg"}
    assert shown.count("display_data") == 1
    assert shown.count("update_display_data") >= 1


def test_a_viewer_is_shown_in_a_frame(kernel: Kernel, tmp_path: Path) -> None:
    """The result of a cell is the page, which the kernel answers while other cells run, until it is closed."""
    pytest.importorskip("starlette")
    make_photos(tmp_path / "photos", 3)

    (shown,) = [
        content["data"]["text/html"]
        for kind, content in kernel.follow(kernel.begin(f"viewer = ps.view({str(tmp_path / 'photos')!r})\nviewer"))
        if kind == "execute_result"
    ]
    busy = kernel.begin("for _ in range(20): time.sleep(0.01)")
    url = re.search(r'<iframe src="([^"]+)"', shown)
    assert url is not None
    with urllib.request.urlopen(f"{url[1]}api/session", timeout=_PATIENCE_S) as answer:
        session = json.load(answer)
        rules = answer.headers["content-security-policy"]
    kernel.follow(busy)

    assert session["total"] == 3
    assert "frame-ancestors 'self' http://localhost:*" in rules
    assert kernel.run("viewer.close()\nviewer.close()") == ""
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url[1], timeout=_PATIENCE_S)
