import os
import sys
import time
from torch.utils.data import TensorDataset
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

x = torch.rand(12000, 784)
y = torch.randint(0, 10, (12000,))
loader = DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True)

model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())

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
