"""No library goes to the network, writes outside a temporary folder, or finds the state that another test left."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

HOME = Path(tempfile.mkdtemp(prefix="penstock-clients-"))

# Before the libraries are imported: they read these once.
os.environ.update(
    HF_HOME=str(HOME / "huggingface"),
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    TRANSFORMERS_OFFLINE="1",
    TRANSFORMERS_VERBOSITY="error",
    TOKENIZERS_PARALLELISM="false",
    YOLO_CONFIG_DIR=str(HOME / "ultralytics"),
    YOLO_OFFLINE="True",
    YOLO_VERBOSE="False",
    YOLO_AUTOINSTALL="False",
    MPLCONFIGDIR=str(HOME / "matplotlib"),
    MPLBACKEND="agg",
    WANDB_DISABLED="true",
    OMP_NUM_THREADS="1",
)
for folder in HOME / "ultralytics", HOME / "matplotlib":
    folder.mkdir()

import torch  # noqa: E402  # with the variables above

torch.set_num_threads(1)


WARNINGS = (
    # Said by the libraries while they are imported, about the torch and the Python that they run on.
    r"ignore:.*torch\.jit\.script. is deprecated:FutureWarning",
    # torchdata's loader, whenever one is made.
    r"ignore:'set_vital' is deprecated:UserWarning",
    # Ray, once in a process: ultralytics asks it for a trial after each epoch.
    r"ignore:`get_trial_id` is meant to only be called:UserWarning",
)


def pytest_configure(config: pytest.Config) -> None:
    """Let the libraries say what they say; every other warning is an error, as everywhere."""
    for line in WARNINGS:
        config.addinivalue_line("filterwarnings", line)


def pytest_sessionfinish() -> None:
    """Remove what the libraries wrote."""
    import shutil

    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library writes to the current folder is left in a temporary one."""
    monkeypatch.chdir(tmp_path)
