"""Trains on sentences that a collator pads and masks token by token."""

from __future__ import annotations

import random

import torch
from torch.utils.data import DataLoader, Dataset

WORDS = 5000
Batch = dict[str, torch.Tensor]


class Sentences(Dataset[list[int]]):
    """Lists of token numbers, of 20 to 400 tokens."""

    def __init__(self) -> None:
        rng = random.Random(0)
        self.rows = [[rng.randrange(1, WORDS) for _ in range(rng.randint(20, 400))] for _ in range(2000)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> list[int]:
        return self.rows[index]


class PadCollator:
    """Pads the sentences of a batch to the longest of them."""

    def __call__(self, rows: list[list[int]]) -> Batch:
        longest = max(len(row) for row in rows)
        ids, mask = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest)
        for number, row in enumerate(rows):
            for place, token in enumerate(row):
                ids[number, place] = token
                mask[number, place] = 1.0
        return {"ids": ids, "mask": mask, "labels": torch.tensor([len(row) % 2 for row in rows])}


def main() -> None:
    """Train a bag of words for a number of steps, over epochs."""
    loader = DataLoader(Sentences(), batch_size=16, shuffle=True, num_workers=2, collate_fn=PadCollator())
    embedding, head = torch.nn.Embedding(WORDS, 32), torch.nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*embedding.parameters(), *head.parameters()])
    batches = iter(loader)
    for _ in range(1000):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        words = (embedding(batch["ids"]) * batch["mask"][..., None]).sum(1)
        loss = torch.nn.functional.cross_entropy(head(words), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
