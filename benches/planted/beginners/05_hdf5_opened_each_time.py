import os
import sys
import time
import h5py
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class H5(Dataset):
    def __init__(self, path):
        self.path = path
        with h5py.File(path) as f:
            self.n = len(f["images"])

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        with h5py.File(self.path) as f:
            x = f["images"][i]
            y = f["labels"][i]
        return torch.from_numpy(x).float() / 255, int(y)

loader = DataLoader(H5(DATA + "/images.h5"), batch_size=32, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Flatten(), nn.Linear(12288, 10))
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
