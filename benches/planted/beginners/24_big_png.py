import os
import sys
import time
from PIL import Image
from torchvision import transforms
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

tf = transforms.Compose([transforms.RandomCrop(224), transforms.ToTensor()])

class Scans(Dataset):
    def __init__(self, root):
        self.files = [os.path.join(root, f) for f in sorted(os.listdir(root))]

    def __len__(self):
        return len(self.files) * 8

    def __getitem__(self, i):
        return tf(Image.open(self.files[i % len(self.files)]).convert("RGB")), i % 10

loader = DataLoader(Scans(DATA + "/png"), batch_size=16, shuffle=True, num_workers=2)

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
