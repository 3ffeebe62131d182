"""Trains on lines of compressed text that are counted as words and pairs of words, in Python."""

from __future__ import annotations

import gzip
import itertools
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TOKEN = re.compile(r"[a-z]+|[0-9]+|[^\sa-z0-9]")
BUCKETS = 10_000
Sample = tuple[torch.Tensor, int]


def count_words(line: str) -> list[int]:
    """Numbers of the words and pairs of neighbours, each as often as it occurs."""
    words = TOKEN.findall(line.lower())
    counts = Counter(words + [f"{first}_{second}" for first, second in itertools.pairwise(words)])
    return [hash(word) % BUCKETS for word, count in counts.items() for _ in range(count)]


class Lines(IterableDataset[Sample]):
    """The lines of some files, which workers share."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        for path in self.files if worker is None else self.files[worker.id :: worker.num_workers]:
            with gzip.open(path, "rt") as file:
                for line in file:
                    numbers = count_words(line)[:256]
                    yield torch.tensor(numbers + [0] * (256 - len(numbers))), len(line) % 2


def write_files(folder: Path) -> list[Path]:
    """Four files of random words."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijkl", k=rng.randint(2, 9))) for _ in range(3000)]
    files = [folder / f"part-{number}.txt.gz" for number in range(4)]
    for path in files:
        with gzip.open(path, "wt") as file:
            file.writelines(" ".join(rng.choices(words, k=500)) + "\n" for _ in range(2500))
    return files


def main() -> None:
    """Train a bag of words."""
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(Lines(write_files(Path(folder))), batch_size=32, num_workers=2)
        bag, head = torch.nn.EmbeddingBag(BUCKETS, 16), torch.nn.Linear(16, 2)
        optimizer = torch.optim.SGD([*bag.parameters(), *head.parameters()], 0.1)
        for _ in range(3):
            for numbers, labels in loader:
                loss = torch.nn.functional.cross_entropy(head(bag(numbers)), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


if __name__ == "__main__":
    main()
