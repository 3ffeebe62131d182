import os
import sys
import time
import zipfile
import io
from PIL import Image
from torchvision import transforms
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

tf = transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()])

class Zipped(Dataset):
    def __init__(self, path):
        self.path = path
        self.names = zipfile.ZipFile(path).namelist()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        with zipfile.ZipFile(self.path) as z:
            img = Image.open(io.BytesIO(z.read(self.names[i]))).convert("RGB")
        return tf(img), i % 10

loader = DataLoader(Zipped(DATA + "/small.zip"), batch_size=32, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Flatten(), nn.Linear(12288, 10))
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
