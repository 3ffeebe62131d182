import os
import sys
import time
from torch.utils.data import TensorDataset
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

x = torch.rand(60000, 20)
y = torch.randint(0, 2, (60000,))
loader = DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True)

model = nn.Sequential(nn.Flatten(), nn.Linear(20, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

n, t = 0, time.time()
for epoch in range(3):
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += len(y)
    print("epoch", epoch, "loss", loss.item())
print(n / (time.time() - t), "samples/s")
