import os
import sys
import time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Clicks(Dataset):
    def __init__(self):
        self.data = np.random.default_rng(0).random((20000, 40), "float32")

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        row = self.data[i]
        return {"f%d" % k: torch.tensor(row[k]) for k in range(40)}, int(row[0] > 0.5)

loader = DataLoader(Clicks(), batch_size=256, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Flatten(), nn.Linear(40, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

n, t = 0, time.time()
for epoch in range(1):
    for x, y in loader:
        out = model(torch.stack([x[k] for k in sorted(x)], dim=1))
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += len(y)
    print("epoch", epoch, "loss", loss.item())
print(n / (time.time() - t), "samples/s")
