"""Train without torch: batches are NumPy arrays, for a network in NumPy here, and for
JAX or other libraries.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import penstock as ps
from penstock import transforms as T
from penstock.demo.photographs import write_photographs

DATA = write_photographs(
    Path("photographs"), train=40, held_out=10, sides=(100, 160)
)  # yours: Path("your/folder")
SIZE, HIDDEN, RATE = 16, 64, 0.02
FINISH = [T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD), T.ToLayout("HWC", "float32")]
AUGMENT = [
    T.Decode(),
    T.RandomResizedCrop(SIZE, scale=(0.5, 1.0)),
    T.HorizontalFlip(),
    *FINISH,
]
EVALUATE = [T.Decode(), T.Resize((SIZE, SIZE)), *FINISH]
Array = NDArray[np.float32]


class Network:
    """Two layers, with the gradients written out."""

    def __init__(self, classes: int) -> None:
        draw = np.random.default_rng(0)
        self.first = draw.normal(0, 0.03, (SIZE * SIZE * 3, HIDDEN)).astype(np.float32)
        self.second = draw.normal(0, 0.1, (HIDDEN, classes)).astype(np.float32)

    def predict(self, images: Array) -> tuple[Array, Array]:
        """Values of the hidden layer (n, HIDDEN), and probabilities (n, classes), of
        images (n, SIZE, SIZE, 3).
        """
        hidden = np.maximum(images.reshape(len(images), -1) @ self.first, 0)
        scores = np.exp(hidden @ self.second)
        return hidden, scores / scores.sum(1, keepdims=True)

    def learn(self, images: Array, labels: NDArray[np.int64]) -> float:
        """One step of gradient descent; the loss before it."""
        hidden, chances = self.predict(images)
        loss = -np.log(chances[np.arange(len(labels)), labels]).mean()
        chances[np.arange(len(labels)), labels] -= 1
        back = (chances / len(labels)) @ self.second.T * (hidden > 0)
        self.second -= RATE * hidden.T @ (chances / len(labels))
        self.first -= RATE * images.reshape(len(images), -1).T @ back
        return float(loss)


def main() -> None:
    """Train, evaluate, resume."""
    store = ps.open(DATA / "train")
    network = Network(len(store.schema["label"].classes))
    dataset = ps.StoreDataset(store, ("image", "label"), AUGMENT)
    loader = ps.DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2, seed=0)
    for epoch in range(8):
        losses = [network.learn(images, labels) for images, labels in loader]
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}")

    held_out = ps.StoreDataset(
        ps.open(DATA / "held-out"), {"pixels": "image", "class": "label"}, EVALUATE
    )
    [batch] = ps.DataLoader(
        held_out, batch_size=len(held_out)
    )  # a dict, as the fields are one
    pixels: Array = batch["pixels"]
    correct = int((network.predict(pixels)[1].argmax(1) == batch["class"]).sum())
    print(
        f"{type(pixels).__name__} {pixels.dtype} {pixels.shape}: {correct} of "
        f"{len(held_out)} correct"
    )

    state = ""
    rest: list[Array] = []
    for number, (images, _) in enumerate(loader, 1):
        if number == 2:
            state = json.dumps(loader.state_dict())
        elif number > 2:
            rest.append(images.copy())
    resumed = ps.DataLoader(dataset, batch_size=32, shuffle=True, num_workers=1, seed=0)
    resumed.load_state_dict(json.loads(state))
    same = sum(
        np.array_equal(images, one)
        for (images, _), one in zip(resumed, rest, strict=True)
    )
    print(
        f"resumed after 2 batches with another number of workers: {same} of "
        f"{len(rest)} batches are the same"
    )


if __name__ == "__main__":
    main()
