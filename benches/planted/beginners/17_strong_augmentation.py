import os
import sys
import time
from torchvision import datasets, transforms
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

tf = transforms.Compose([
    transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(),
    transforms.ColorJitter(0.4, 0.4, 0.4, 0.1), transforms.RandomAffine(20, (0.1, 0.1), (0.8, 1.2)),
    transforms.GaussianBlur(9), transforms.ToTensor()])
loader = DataLoader(datasets.ImageFolder(DATA + "/photos", tf), batch_size=32, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Flatten(), nn.Linear(150528, 10))
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
