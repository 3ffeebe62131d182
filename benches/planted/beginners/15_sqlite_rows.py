import os
import sys
import time
import sqlite3
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Measurements(Dataset):
    def __init__(self):
        con = sqlite3.connect(DATA + "/measurements.db")
        self.n = con.execute("select count(*) from m").fetchone()[0]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        con = sqlite3.connect(DATA + "/measurements.db")
        blob, y = con.execute("select x, y from m where number = ?", (i,)).fetchone()
        con.close()
        return torch.from_numpy(np.frombuffer(blob, "float32").copy()), y

loader = DataLoader(Measurements(), batch_size=64, shuffle=True)

model = nn.Sequential(nn.Flatten(), nn.Linear(128, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

n, t = 0, time.time()
for epoch in range(1):
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += len(y)
    print("epoch", epoch, "loss", loss.item())
print(n / (time.time() - t), "samples/s")
