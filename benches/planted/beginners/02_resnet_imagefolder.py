import os
import sys
import time
import torchvision
from torchvision import datasets, transforms
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

train = datasets.ImageFolder(DATA + "/photos", transforms.Compose([
    transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
loader = DataLoader(train, batch_size=16, shuffle=True, num_workers=2)

model = torchvision.models.resnet18(num_classes=10)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

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
