"""Trains on records of an SQL database, asked for by a column without an index."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

Sample = tuple[torch.Tensor, int]
COUNT = 20_000


class Records(Dataset[Sample]):
    """One query for each sample; each worker has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection: sqlite3.Connection | None = None

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Sample:
        if self.connection is None:
            self.connection = sqlite3.connect(self.path)
        query = "SELECT vector, label FROM samples WHERE name = ?"
        vector, label = self.connection.execute(query, (f"sample-{index}",)).fetchone()
        return torch.from_numpy(np.frombuffer(vector, np.float32).copy()), label


def write_database(path: Path) -> None:
    """Vectors and labels."""
    rng = np.random.default_rng(0)
    rows = ((f"sample-{index}", rng.random(64, np.float32).tobytes(), index % 4) for index in range(COUNT))
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE samples (name TEXT, vector BLOB, label INTEGER)")
    connection.executemany("INSERT INTO samples VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()


class Trainer:
    """A small network and its optimizer."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def fit(self, loader: DataLoader[Sample]) -> None:
        """Train for an epoch."""
        for vectors, labels in loader:
            loss = torch.nn.functional.cross_entropy(self.model(vectors), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_database(Path(folder) / "train.db")
        Trainer().fit(DataLoader(Records(Path(folder) / "train.db"), batch_size=16, shuffle=True, num_workers=2))
