import os
import sys
import time
import random
from PIL import Image
from torchvision import transforms
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

tf = transforms.Compose([transforms.Resize(256), transforms.RandomCrop(224), transforms.ToTensor()])

class Triplets(Dataset):
    def __init__(self, root):
        self.by_class = {}
        for c in sorted(os.listdir(root)):
            self.by_class[c] = [os.path.join(root, c, f) for f in os.listdir(os.path.join(root, c))]
        self.all = [(c, f) for c, fs in self.by_class.items() for f in fs]

    def __len__(self):
        return len(self.all)

    def __getitem__(self, i):
        c, anchor = self.all[i]
        positive = random.choice(self.by_class[c])
        other = random.choice([k for k in self.by_class if k != c])
        negative = random.choice(self.by_class[other])
        images = [tf(Image.open(f).convert("RGB")) for f in (anchor, positive, negative)]
        return torch.stack(images), int(c[-1])

loader = DataLoader(Triplets(DATA + "/photos"), batch_size=16, shuffle=True, num_workers=2)

model = nn.Sequential(nn.Flatten(), nn.Linear(451584, 10))
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
