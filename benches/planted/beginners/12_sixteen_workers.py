import os
import sys
import time
from torchvision import datasets, transforms
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

train = datasets.ImageFolder(DATA + "/small_classes", transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()]))
loader = DataLoader(train, batch_size=32, shuffle=True, num_workers=16)

model = nn.Sequential(nn.Flatten(), nn.Linear(12288, 10))
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
