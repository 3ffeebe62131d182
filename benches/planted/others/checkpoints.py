"""Trains with a checkpoint and a line of a log after each step."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

Sample = tuple[torch.Tensor, torch.Tensor]
logger = logging.getLogger("train")


class Waves(Dataset[Sample]):
    """A piece of a sine, and one of a cosine."""

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> Sample:
        time = torch.arange(64) / 10 + index
        return time.sin(), time.cos()[:8]


def main() -> None:
    """Train a small network; its optimizer's state is saved with it."""
    logging.basicConfig(level=logging.INFO)
    model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.Tanh(), torch.nn.Linear(4096, 8))
    optimizer = torch.optim.Adam(model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        for step, (waves, expected) in enumerate(DataLoader(Waves(), batch_size=16, shuffle=True, num_workers=2)):
            loss = (model(waves) - expected).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for name in ("last", "previous", "best"):
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, Path(folder) / f"{name}.pt")
            logger.info("step %d, loss %.4f", step, loss.item())


if __name__ == "__main__":
    main()
