import os
import sys
import time
from PIL import Image
from torchvision import transforms
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = sys.argv[1]

tf = transforms.Compose([transforms.Resize((512, 512)), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                         transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))])

class CatsDogs(Dataset):
    def __init__(self, root):
        self.files = [os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        return tf(Image.open(self.files[i]).convert("RGB")), int("class0" in self.files[i])

loader = DataLoader(CatsDogs(DATA + "/photos"), batch_size=16, shuffle=True, num_workers=2, pin_memory=True)

model = nn.Sequential(nn.Flatten(), nn.Linear(786432, 2))
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
