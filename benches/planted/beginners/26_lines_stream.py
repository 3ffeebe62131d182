import os
import sys
import time
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

DATA = sys.argv[1]

class Lines(IterableDataset):
    def __iter__(self):
        with open(DATA + "/vectors.jsonl") as f:
            for line in f:
                row = json.loads(line)
                yield torch.tensor(row["x"]), row["y"]

loader = DataLoader(Lines(), batch_size=64)

model = nn.Sequential(nn.Flatten(), nn.Linear(256, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

n, t = 0, time.time()
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += len(y)
    print("epoch", epoch, "loss", loss.item())
print(n / (time.time() - t), "samples/s")
