import sys
import time
import os

import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader

config = {
    "file": "power.csv",
    "seq_len": 96,        # one day
    "pred_len": 24,       # six hours
    "features": 7,
    "hidden": 24,
    "batch_size": 16,
    "lr": 1e-3,
    "workers": 2,
    "max_steps": 300,
}


class CustomCSVDataset(Dataset):
    """The real file has 40 GB, so only what is needed is loaded."""

    def __init__(self, path, seq_len, pred_len, flag="train"):
        self.path = path
        self.seq_len = seq_len
        self.pred_len = pred_len
        with open(path) as f:
            n_rows = sum(1 for _ in f) - 1
        border = int(n_rows * 0.8)
        self.begin, self.end = (0, border) if flag == "train" else (border, n_rows)

    def __len__(self):
        return self.end - self.begin - self.seq_len - self.pred_len + 1

    def __getitem__(self, index):
        first = self.begin + index
        df = pd.read_csv(self.path, skiprows=range(1, first + 1), nrows=self.seq_len + self.pred_len)
        data = torch.tensor(df.drop(columns="date").to_numpy(), dtype=torch.float32)
        data = (data - 100) / 40
        return data[: self.seq_len], data[self.seq_len :]


def get_loader(flag):
    ds = CustomCSVDataset(os.path.join(sys.argv[1], config["file"]), config["seq_len"], config["pred_len"], flag)
    return DataLoader(ds, batch_size=config["batch_size"], shuffle=(flag == "train"),
                      num_workers=config["workers"], drop_last=True)


class Seq2Seq(nn.Module):
    def __init__(self, c, hidden, pred_len):
        super(Seq2Seq, self).__init__()
        self.gru = nn.GRU(c, hidden, batch_first=True)
        self.out = nn.Linear(hidden, pred_len * c)
        self.pred_len = pred_len

    def forward(self, x):
        _, h = self.gru(x)
        return x[:, -1:] + self.out(h[-1]).view(x.size(0), self.pred_len, -1)


def validate(model, loader, criterion, steps=4):
    model.eval()
    losses = []
    with torch.no_grad():
        for i, (x, y) in enumerate(loader):
            if i == steps:
                break
            losses.append(criterion(model(x), y).item())
    model.train()
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(2021)
    train_loader = get_loader("train")
    model = Seq2Seq(config["features"], config["hidden"], config["pred_len"])
    criterion = nn.MSELoss()
    optim = torch.optim.Adam(model.parameters(), lr=config["lr"])

    time_now = time.time()
    step = 0
    for x, y in train_loader:
        optim.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optim.step()
        step += 1
        if step % 50 == 0:
            speed = (time.time() - time_now) / step
            print("\titers: {0} | loss: {1:.7f} | {2:.4f}s/iter".format(step, loss.item(), speed))
        if step == config["max_steps"]:
            break
    seconds = time.time() - time_now
    print("vali loss: {:.5f}".format(validate(model, get_loader("val"), criterion)))
    print("{:.1f} samples/s".format(step * config["batch_size"] / seconds))


if __name__ == "__main__":
    main()
