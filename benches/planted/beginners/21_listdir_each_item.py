import os
import sys
import time
from PIL import Image
from torchvision import transforms
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

tf = transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()])

class Folder(Dataset):
    def __init__(self, root):
        self.root = root

    def __len__(self):
        return len(os.listdir(self.root))

    def __getitem__(self, i):
        name = sorted(os.listdir(self.root))[i]
        return tf(Image.open(os.path.join(self.root, name)).convert("RGB")), i % 10

loader = DataLoader(Folder(DATA + "/small"), batch_size=32, shuffle=True, num_workers=2)

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
