import os
import sys
import time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Rows(Dataset):
    def __init__(self):
        self.n = len(np.load(DATA + "/features.npy"))
        self.labels = np.load(DATA + "/labels.npy")

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = np.load(DATA + "/features.npy")[i]
        return torch.tensor(x), int(self.labels[i])

loader = DataLoader(Rows(), batch_size=64, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Flatten(), nn.Linear(1024, 10))
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
