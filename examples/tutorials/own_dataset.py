"""Keep your Dataset class and its transforms, and change one import: the same batches,
and exact resume.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
import torch.utils.data
from PIL import Image
from torch import Tensor, nn

from penstock.demo.photographs import write_photographs
from penstock.torch import DataLoader  # was: from torch.utils.data import DataLoader

Pair = tuple[Tensor, int]


class Photographs(torch.utils.data.Dataset[Pair]):
    """A dataset as in many projects: a list of files, Pillow, and random numbers of
    torch.
    """

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))
        self.classes = sorted({path.parent.name for path in self.files})

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Pair:
        path = self.files[index]
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB").resize((64, 64)))
        tensor = torch.from_numpy(pixels).permute(2, 0, 1).float() / 255
        return tensor.flip(2) if torch.rand(()) < 0.5 else tensor, self.classes.index(
            path.parent.name
        )


def main() -> None:
    """Compare with torch's loader, train, resume."""
    dataset = Photographs(
        write_photographs(Path("photographs"), train=24, held_out=0, sides=(100, 160))
        / "train"
    )
    torch.manual_seed(0)
    theirs = [
        images
        for images, _ in torch.utils.data.DataLoader(
            dataset, batch_size=32, shuffle=True, num_workers=2
        )
    ]
    torch.manual_seed(0)
    ours = [
        images.clone()
        for images, _ in DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2)
    ]
    same = sum(torch.equal(one, other) for one, other in zip(theirs, ours, strict=True))
    print(f"{same} of {len(theirs)} batches are those of torch's loader, to the bit")

    network = nn.Sequential(
        nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2),
        nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(dataset.classes)),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2)
    state = ""
    rest: list[Tensor] = []
    for epoch in range(4):
        losses: list[float] = []
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if epoch == 3 and len(losses) == 3:
                state = json.dumps(
                    loader.state_dict()
                )  # in a checkpoint, beside the network's
            elif state:
                rest.append(images.clone())
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")

    resumed = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2)
    resumed.load_state_dict(json.loads(state))
    same = sum(
        torch.equal(images, one) for (images, _), one in zip(resumed, rest, strict=True)
    )
    print(
        f"resumed after batch 3 of {len(loader)}: {same} of {len(rest)} batches are "
        f"the same, augmented too"
    )


if __name__ == "__main__":
    main()
