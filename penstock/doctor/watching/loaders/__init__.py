"""How loaders and their workers are watched: torch's and penstock's."""

from typing import Final

__all__ = ["INSTALLERS"]

INSTALLERS: Final = {
    "torch.utils.data.dataloader": ("penstock.doctor.watching.loaders.torch_loader", "install"),
    "penstock.loader.loader": ("penstock.doctor.watching.loaders.own_loader", "install"),
    "penstock.torch.loader.dataloader": ("penstock.doctor.watching.loaders.own_loader", "install_torch"),
}
"""By the module of a loader, what watches it: a function that takes a watcher."""
