import os
import sys
import time
import random
import numpy as np
from PIL import Image
from torchvision.transforms import functional as F
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

class Seg(Dataset):
    def __init__(self, root):
        self.names = sorted(os.listdir(root + "/images"))
        self.root = root

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        img = Image.open(self.root + "/images/" + self.names[i]).convert("RGB")
        mask = Image.open(self.root + "/masks/" + self.names[i].replace(".jpg", ".png"))
        angle = random.uniform(-30, 30)
        img = F.rotate(img, angle, interpolation=F.InterpolationMode.BICUBIC)
        mask = F.rotate(mask, angle)
        img = F.resize(img, [256, 256])
        mask = F.resize(mask, [256, 256], interpolation=F.InterpolationMode.NEAREST)
        return F.to_tensor(img), torch.from_numpy(np.array(mask)).long()

loader = DataLoader(Seg(DATA + "/seg"), batch_size=8, shuffle=True, num_workers=2)

model = nn.Conv2d(3, 5, 3, padding=1)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

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
