"""Adapters by which trainers of other libraries save where a loader stands, and continue there.

Each trainer has a module here, which is imported when one of its names is asked for: the trainers are optional
packages. A trainer that saves a loader's ``state_dict`` by itself has none. docs/howto/resume.md says what to write.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from penstock.wording import list_public_names

if TYPE_CHECKING:
    from penstock.torch.resume.accelerate import adopt_for_accelerate
    from penstock.torch.resume.composer import ComposerResume
    from penstock.torch.resume.lightning import LightningResume
    from penstock.torch.resume.rank_files import load_loader, save_loader
    from penstock.torch.resume.ranks import JobLoader
    from penstock.torch.resume.torchft import ReplicaLoader
    from penstock.torch.resume.transformers import TransformersResume

_MODULES: Final = {
    "ComposerResume": "composer",
    "JobLoader": "ranks",
    "LightningResume": "lightning",
    "ReplicaLoader": "torchft",
    "TransformersResume": "transformers",
    "adopt_for_accelerate": "accelerate",
    "load_loader": "rank_files",
    "save_loader": "rank_files",
}
"""In which module of this package each public name is."""

__all__ = [
    "ComposerResume",
    "JobLoader",
    "LightningResume",
    "ReplicaLoader",
    "TransformersResume",
    "adopt_for_accelerate",
    "load_loader",
    "save_loader",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list_public_names(globals(), __all__)
