import os
import sys
import time
from torch.utils.data import TensorDataset
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

images = torch.rand(3000, 3, 64, 64)
labels = torch.randint(0, 10, (3000,))
loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                      nn.Flatten(), nn.Linear(64, 10))
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
