"""Next-rating prediction from the last films a user has seen (GRU4Rec-ish, very reduced)."""
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

HISTORY = 15
MOVIES = 2001


def load_ratings(path: Path) -> pd.DataFrame:
    df = pd.read_csv(path)
    df["liked"] = (df["rating"] >= 3.5).astype("int64")
    return df


class HistoryDataset(Dataset):
    def __init__(self, ratings: pd.DataFrame, targets: pd.DataFrame):
        self.ratings = ratings
        self.targets = list(targets[["user_id", "movie_id", "timestamp", "liked"]].itertuples(index=False, name=None))

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, idx):
        user, movie, ts, liked = self.targets[idx]
        seen = self.ratings[(self.ratings["user_id"] == user) & (self.ratings["timestamp"] < ts)]
        seen = seen.sort_values("timestamp").tail(HISTORY)
        films = np.zeros(HISTORY, dtype=np.int64)
        scores = np.zeros(HISTORY, dtype=np.float32)
        films[: len(seen)] = seen["movie_id"].to_numpy()
        scores[: len(seen)] = seen["rating"].to_numpy()
        return {"films": films, "scores": scores, "movie": movie, "liked": np.float32(liked)}


class Recommender(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.movie = nn.Embedding(MOVIES, dim, padding_idx=0)
        self.mlp = nn.Sequential(nn.Linear(2 * dim + 1, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, batch):
        past = self.movie(batch["films"]) * batch["scores"].unsqueeze(-1)
        mean_score = batch["scores"].mean(1, keepdim=True)
        x = torch.cat([past.mean(1), self.movie(batch["movie"]), mean_score], dim=1)
        return self.mlp(x).squeeze(1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = total = 0
    for batch in loader:
        p = model(batch) > 0
        hits += (p == batch["liked"].bool()).sum().item()
        total += len(p)
    model.train()
    return hits / total


def main():
    torch.manual_seed(13)
    ratings = load_ratings(Path(sys.argv[1]) / "ratings.csv")
    late = ratings.tail(60_000).sample(22_000, random_state=13)
    train_ds = HistoryDataset(ratings, late.iloc[:20_500])
    valid_ds = HistoryDataset(ratings, late.iloc[20_500:])
    train_dl = DataLoader(train_ds, batch_size=64, shuffle=True, num_workers=2)
    valid_dl = DataLoader(valid_ds, batch_size=256, num_workers=2)

    model = Recommender()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    bce = nn.BCEWithLogitsLoss()

    seen, start = 0, perf_counter()
    for i, batch in enumerate(train_dl, 1):
        loss = bce(model(batch), batch["liked"])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        seen += len(batch["liked"])
        if i % 100 == 0:
            print(f"[{i:>4}/{len(train_dl)}] bce={loss.item():.4f}")
    speed = seen / (perf_counter() - start)
    print(f"valid accuracy {evaluate(model, valid_dl):.3f}")
    print(f"training ran at {speed:.1f} samples/s")


if __name__ == "__main__":
    main()
