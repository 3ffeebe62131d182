"""Training scripts as people write them, with the mistakes that a rule must find marked in comments.

A comment ``# trap: RULE`` marks a line that a finding of this rule must name. Each script is otherwise right, so that
any other finding is wrong. Scripts run on the CPU; they use a device where there is one, as such scripts do.
"""

from __future__ import annotations

from typing import Final

__all__ = ["COMMON", "LIBRARY", "SCRIPTS"]

COMMON: Final = '''
import torch


class Photos(torch.utils.data.Dataset):
    """Pictures of 48 KB each, and a label."""

    def __init__(self, count=256, dtype=torch.uint8, side=64):
        self.count, self.dtype, self.side = count, dtype, side

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((3, self.side, self.side), index % 7, dtype=self.dtype), index % 10


def make_model(side=64):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * side * side, 10))
'''

LIBRARY: Final = '''
import torch


class Wrapped:
    """A loader that moves batches to a device, and fetches one ahead."""

    def __init__(self, loader, device):
        self.loader, self.device = loader, device

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        batches = iter(self.loader)
        current = next(batches)
        for following in batches:
            yield self.move(current)
            current = following
        yield self.move(current)

    def move(self, batch):
        return tuple(each.to(self.device) for each in batch)


class Engine:
    """A loop that calls what it was given."""

    def __init__(self, update):
        self.update, self.handlers = update, []

    def run(self, loader):
        for number, batch in enumerate(loader):
            self.output = self.update(self, batch)
            for handler in self.handlers:
                handler(self, number)


class Trainer:
    """A loop that moves batches, and calls a model that computes its loss."""

    def __init__(self, model, callbacks=()):
        self.model, self.callbacks = model, callbacks

    def fit(self, loader):
        device = next(self.model.parameters()).device
        for number, batch in enumerate(loader):
            images, labels = (each.to(device) for each in batch)
            output = self.model(images=images, labels=labels)
            output["loss"].backward()
            for callback in self.callbacks:
                callback.on_batch_end(self, {"loss": output["loss"].detach()}, number)
'''
"""A package that is installed: its loops are not the user's."""

SCRIPTS: Final = {
    "imagenet": """
import argparse
import time

import torch
import torch.nn as nn
from common import Photos, make_model

parser = argparse.ArgumentParser()
parser.add_argument("--print-freq", default=10, type=int)


class AverageMeter:
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.name} {self.avg}"


class ProgressMeter:
    def __init__(self, num_batches, meters, prefix=""):
        self.meters, self.prefix = meters, prefix

    def display(self, batch):
        print("\\t".join([self.prefix, *(str(meter) for meter in self.meters)]))


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            res.append(correct_k.mul_(100.0 / batch_size))
        return res


def train(train_loader, model, criterion, optimizer, epoch, device, args):
    batch_time, data_time, losses, top1 = (AverageMeter(n) for n in ("Time", "Data", "Loss", "Acc@1"))
    progress = ProgressMeter(len(train_loader), [batch_time, data_time, losses, top1], prefix=f"Epoch: [{epoch}]")
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(train_loader):
        data_time.update(time.time() - end)
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        losses.update(loss.item(), images.size(0))  # trap: wait-each-step
        top1.update(acc1[0], images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            progress.display(i + 1)


def validate(val_loader, model, criterion, device, args):
    model.eval()
    with torch.no_grad():
        for i, (images, target) in enumerate(val_loader):
            output = model(images.to(device, non_blocking=True))
            print(criterion(output, target.to(device, non_blocking=True)).item())


def main():
    args = parser.parse_args([])
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    model = make_model().to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    train_dataset = Photos(dtype=torch.float32)
    train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=16, shuffle=True, pin_memory=True)
    for epoch in range(2):
        train(train_loader, model, criterion, optimizer, epoch, device, args)


if __name__ == "__main__":
    main()
""",
    "imagenet of 2019": """
import torch
from common import Photos, make_model


def train(train_loader, model, criterion, optimizer, gpu):
    for i, (images, target) in enumerate(train_loader):
        if gpu is not None:
            images = images.cuda(gpu, non_blocking=True)
        if torch.cuda.is_available():
            target = target.cuda(gpu, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 10 == 0:
            print(loss.item())


model = make_model()
gpu = 0 if torch.cuda.is_available() else None
if gpu is not None:
    model = model.cuda(gpu)
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=16, pin_memory=True)
train(loader, model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 1e-9), gpu)
""",
    "a notebook": """
import torch
import torch.optim as optim
from common import Photos, make_model

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
net = make_model().to(device)
criterion = torch.nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=1e-9, momentum=0.9)
trainloader = torch.utils.data.DataLoader(Photos(), batch_size=32, shuffle=True)
running_loss = 0.0
for epoch in range(2):
    for i, data in enumerate(trainloader, 0):
        inputs, labels = data[0].to(device), data[1].to(device)
        optimizer.zero_grad()
        outputs = net(inputs / 255)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()  # trap: wait-each-step
        if i % 2000 == 1999:
            print(f"[{epoch + 1}, {i + 1:5d}] loss: {running_loss / 2000:.3f}")
            running_loss = 0.0
print("Finished Training")
""",
    "a step in a function": """
import torch
import torch.nn.functional as F
from common import Photos
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3 * 64 * 64, 10)

    def forward(self, x):
        return self.fc(x.flatten(1))


def train_step(model, optimizer, batch, device):
    images, labels = batch
    images = images.float() / 255  # trap: cast-before-copy
    images, labels = images.to(device), labels.to(device)  # trap: blocking-copy
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    loader = torch.utils.data.DataLoader(Photos(), batch_size=32, shuffle=True, pin_memory=True)
    for epoch in range(2):
        total = 0.0
        for batch in loader:
            loss = train_step(model, optimizer, batch, device)
            total += float(loss)  # trap: wait-each-step
            if loss > 1e9:  # trap: wait-each-step
                break
            torch.cuda.empty_cache()  # trap: cleanup-each-step


main()
""",
    "tqdm": """
import torch
from common import Photos, make_model
from tqdm import tqdm

device = "cuda" if torch.cuda.is_available() else "cpu"
model = make_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
loss_fn = torch.nn.CrossEntropyLoss()
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32)
for epoch in range(2):
    with tqdm(loader, unit="batch", disable=True) as tepoch:
        for data, target in tepoch:
            data, target = data.to(device, non_blocking=True), target.to(device)  # trap: blocking-copy
            optimizer.zero_grad()
            output = model(data)
            predictions = output.argmax(dim=1, keepdim=True).squeeze()
            loss = loss_fn(output, target)
            correct = (predictions == target).sum().item()  # trap: wait-each-step
            loss.backward()
            optimizer.step()
            tepoch.set_postfix(loss=loss, accuracy=100.0 * correct / 32)  # trap: wait-each-step
""",
    "tqdm over enumerate": """
import torch
from common import Photos, make_model
from tqdm import tqdm

device = "cuda" if torch.cuda.is_available() else "cpu"
model = make_model().to(device)
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32)
for epoch in range(2):
    pbar = tqdm(enumerate(loader), total=len(loader), disable=True)
    for step, (x, y) in pbar:
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        if step % 10 == 0:
            pbar.set_postfix({"loss": loss.item()})
""",
    "a trainer like Lightning's": """
import torch
from common import Photos, make_model


class LitModel:
    def __init__(self, device):
        self.device = device
        self.net = make_model().to(device)
        self.logged = {}

    def log(self, name, value):
        self.logged.setdefault(name, []).append(value)

    def training_step(self, batch, batch_idx):
        x, y = batch
        x = x.view(x.size(0), -1)
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss.item())  # trap: wait-each-step
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.parameters(), lr=1e-9)


class Trainer:
    def __init__(self, max_epochs, device):
        self.max_epochs, self.device = max_epochs, device

    def to_device(self, batch):
        return tuple(each.to(self.device, non_blocking=True) for each in batch)

    def fit(self, module, loader):
        self.module, self.optimizer = module, module.configure_optimizers()
        for self.epoch in range(self.max_epochs):
            self.fit_epoch(loader)

    def fit_epoch(self, loader):
        for batch_idx, batch in enumerate(loader):
            loss = self.module.training_step(self.to_device(batch), batch_idx)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32, pin_memory=True)
Trainer(2, device).fit(LitModel(device), loader)
""",
    "batches that are dicts": """
import torch
from common import Photos, make_model


class Named(Photos):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return {"image": image, "label": label}


class Output:
    def __init__(self, loss, logits):
        self.loss, self.logits = loss, logits


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = make_model()

    def forward(self, image, label):
        logits = self.net(image.float())
        return Output(torch.nn.functional.cross_entropy(logits, label), logits)


device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
model = Classifier().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-9)
train_dataloader = torch.utils.data.DataLoader(Named(), shuffle=True, batch_size=32)
model.train()
total = torch.zeros((), device=device)
for epoch in range(2):
    for batch in train_dataloader:
        batch = {k: v.to(device) for k, v in batch.items()}
        outputs = model(**batch)
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
        print(f"loss {loss}")  # trap: wait-each-step
print(total.item())
""",
    "a prefetcher": """
import torch
from common import Photos, make_model


class data_prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = self.next_target = None
            return
        if torch.cuda.is_available():
            self.next_input = self.next_input.cuda(non_blocking=True)
            self.next_target = self.next_target.cuda(non_blocking=True)
        self.next_input = self.next_input.float()

    def next(self):
        input, target = self.next_input, self.next_target
        self.preload()
        return input, target


model = make_model()
if torch.cuda.is_available():
    model = model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
criterion = torch.nn.CrossEntropyLoss()
loader = torch.utils.data.DataLoader(Photos(), batch_size=32, pin_memory=True)
prefetcher = data_prefetcher(loader)
input, target = prefetcher.next()
step = 0
while input is not None:
    step += 1
    loss = criterion(model(input), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(loss.item())
    input, target = prefetcher.next()
""",
    "a generator around the loader": """
import math
import sys
import time

import torch
from common import Photos, make_model


class MetricLogger:
    def __init__(self):
        self.meters = {}

    def update(self, **kwargs):
        for k, v in kwargs.items():
            if isinstance(v, torch.Tensor):
                v = v.item()  # a condition, which is not decided here
            self.meters.setdefault(k, []).append(v)

    def log_every(self, iterable, print_freq, header=None):
        start_time = time.time()
        for i, obj in enumerate(iterable):
            yield obj
            if i % print_freq == 0:
                print(header, time.time() - start_time)


def train_one_epoch(model, criterion, optimizer, data_loader, device, epoch):
    metric_logger = MetricLogger()
    for i, (image, target) in enumerate(metric_logger.log_every(data_loader, 10, f"Epoch: [{epoch}]")):
        image, target = image.to(device), target.to(device)  # trap: blocking-copy
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_value = loss.item()  # trap: wait-each-step
        if not math.isfinite(loss_value):
            sys.exit(1)
        metric_logger.update(loss=loss_value, lr=optimizer.param_groups[0]["lr"])


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32, pin_memory=True)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
for epoch in range(2):
    train_one_epoch(model, torch.nn.CrossEntropyLoss(), optimizer, loader, device, epoch)
""",
    "an endless iterator": """
import torch
from common import Photos, make_model

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32, pin_memory=True)
it = iter(loader)
for step in range(24):
    try:
        x, y = next(it)
    except StopIteration:
        it = iter(loader)
        x, y = next(it)
    x = x.to(device)  # trap: blocking-copy
    y = y.to(device, non_blocking=True)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(step, loss)  # trap: wait-each-step
""",
    "mixed precision": """
import torch
from common import Photos, make_model

device = "cuda" if torch.cuda.is_available() else "cpu"
model = make_model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
loader = torch.utils.data.DataLoader(Photos(), batch_size=32, pin_memory=True)
accumulate = 2
for i, (images, labels) in enumerate(loader):
    images = images.to(device, torch.float32, non_blocking=True)  # trap: cast-before-copy
    labels = labels.to(device=device, non_blocking=True)
    with torch.autocast(device_type=device, enabled=device == "cuda"):
        loss = torch.nn.functional.cross_entropy(model(images), labels) / accumulate
    scaler.scale(loss).backward()
    if (i + 1) % accumulate == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print(loss.item())
""",
    "a GAN": """
import torch
import torch.nn as nn
from common import Photos

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
netD = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1), nn.Sigmoid()).to(device)
netG = nn.Sequential(nn.Linear(8, 3 * 16 * 16)).to(device)
criterion = nn.BCELoss()
optimizerD = torch.optim.SGD(netD.parameters(), lr=1e-9)
dataloader = torch.utils.data.DataLoader(Photos(dtype=torch.float32, side=16), batch_size=32)
for i, data in enumerate(dataloader, 0):
    netD.zero_grad()
    real_cpu = data[0].to(device)
    batch_size = real_cpu.size(0)
    label = torch.full((batch_size,), 1.0, dtype=real_cpu.dtype, device=device)
    output = netD(real_cpu / 255).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()
    D_x = output.mean().item()  # trap: wait-each-step
    optimizerD.step()
    if i % 5 == 0:
        print(f"{D_x:.3f} {errD_real.item():.3f}")
""",
    "detection": """
import torch
from common import Photos, make_model


class Boxes(Photos):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image.float(), {"boxes": torch.ones(index % 3 + 1, 4), "name": str(index)}


class Detector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = make_model()

    def forward(self, images, targets=None):
        outputs = self.net(torch.stack(images))
        return {"loss_box": outputs.mean(), "loss_class": outputs.square().mean()}


def collate_fn(batch):
    return tuple(zip(*batch))


def train_one_epoch(model, optimizer, data_loader, device):
    model.train()
    for images, targets in data_loader:
        images = list(image.to(device) for image in images)
        targets = [{k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in t.items()} for t in targets]
        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Detector().to(device)
loader = torch.utils.data.DataLoader(Boxes(), batch_size=8, collate_fn=collate_fn)
train_one_epoch(model, torch.optim.SGD(model.parameters(), lr=1e-9), loader, device)
""",
    "right in all": """
import torch
from common import Photos, make_model

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
compiled = torch.compile(model, disable=True)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
loader = torch.utils.data.DataLoader(Photos(), batch_size=32, shuffle=True, pin_memory=True)
first, _ = next(iter(loader))
print(first.shape, first.dtype, first.float().mean().item())
for epoch in range(2):
    total, seen = torch.zeros((), device=device), 0
    for step, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True).float().div_(255)
        labels = labels.to(device, non_blocking=True)
        loss = torch.nn.functional.cross_entropy(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        seen += len(labels)
        print(step, images.shape, f"{seen} {images.dtype} {loss.requires_grad}")
        if torch.is_grad_enabled() and loss is not None and loss.shape == ():
            pass
        if step % 50 != 0:
            continue
        print(loss.item(), float(total), images.cpu().float().mean().item())
    print((total / seen).item())
""",
    "two ways to copy": """
import torch
from common import Photos, make_model

use_cuda = torch.cuda.is_available()
device = torch.device("cuda" if use_cuda else "cpu")
model = make_model().to(device)
options = {"pin_memory": True} if use_cuda else {"pin_memory": True}
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32, **options)
for images, labels in loader:
    if use_cuda:
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
    else:
        images, labels = images.to(device), labels.to(device)
    torch.nn.functional.cross_entropy(model(images), labels).backward()
""",
    "an evaluation": """
import torch
from common import Photos, make_model

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32, pin_memory=True)
results, correct = [], 0
with torch.inference_mode():
    for images, labels in loader:
        logits = model(images.to(device, non_blocking=True))
        results.append(logits.argmax(1).cpu().numpy())
        correct += (logits.argmax(1).cpu() == labels).sum().item()
print(len(results), correct)
""",
    "only the CPU": """
import gc

import torch
from common import Photos, make_model

device = "cpu"
model = make_model().to(device)
loader = torch.utils.data.DataLoader(Photos(), batch_size=32)
for step, (images, labels) in enumerate(loader):
    images = images.float()
    loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    loss.backward()
    print(loss.item(), float(loss))
    if step % 10 == 0:
        gc.collect()
""",
    "larger types on the CPU": """
import torch
from common import Photos, make_model


class Signals(Photos):
    def __getitem__(self, index):
        return torch.full((3, 64, 64), index, dtype=torch.float64), index % 10


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
loader = torch.utils.data.DataLoader(Signals(), batch_size=32)
for signals, labels in loader:
    signals = signals.float().to(device)  # half of the bytes
    labels = labels.to(torch.int32).to(device)
    model(signals).sum().backward()
""",
    "nothing to copy twice": """
import torch
from common import Photos, make_model


def cut(images, mask):
    return images * mask.to(images.device)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
loader = torch.utils.data.DataLoader(Photos(), batch_size=32, pin_memory=True)
for images, labels in loader:
    mask = (labels > 3).view(-1, 1, 1, 1)
    images = cut(images, mask)
    images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
    mask = torch.ones(3, 64, 64).to(images.device)
    torch.nn.functional.cross_entropy(model(images.float() * mask), labels).backward()
""",
    "masks of segmentation": """
import torch
from common import Photos, make_model


class Masked(Photos):
    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return {"image": image.float(), "mask": image[:1]}


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
loader = torch.utils.data.DataLoader(Masked(), batch_size=32)
for batch in loader:
    images, true_masks = batch["image"], batch["mask"]
    images = images.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
    true_masks = true_masks.to(device=device, dtype=torch.long)  # trap: cast-before-copy
    loss = model(images).sum() + true_masks.sum()
    loss.backward()
    assert not torch.isnan(loss)  # trap: wait-each-step
""",
    "samples to look at, and a collection by hand": """
import gc

import torch
from common import Photos, make_model

gc.disable()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
loader = torch.utils.data.DataLoader(
    Photos(dtype=torch.float32), batch_size=32, num_workers=1, multiprocessing_context="fork"
)
for epoch in range(2):
    images, labels = next(iter(loader))
    print(images.mean().item(), labels.tolist())
    for images, labels in loader:
        torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device)).backward()
        gc.collect()
gc.enable()
""",
    "a loader for each part of the data": """
import torch
from common import Photos, make_model

model = make_model()
dataset = Photos(dtype=torch.float32)
for fold in range(2):
    part = torch.utils.data.Subset(dataset, range(fold * 128, fold * 128 + 128))
    loader = torch.utils.data.DataLoader(part, batch_size=32, num_workers=1, multiprocessing_context="fork")
    for epoch in range(2):
        for images, labels in loader:
            torch.nn.functional.cross_entropy(model(images), labels).backward()
for seed in range(2):
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, num_workers=1, multiprocessing_context="fork")
    for epoch in range(2):
        for images, labels in loader:
            torch.nn.functional.cross_entropy(model(images), labels).backward()
""",
    "a part of the dataset for each epoch": """
import torch
from common import Photos, make_model

dataset, model = Photos(256, dtype=torch.float32), make_model()
for epoch in range(4):
    part = torch.utils.data.Subset(dataset, torch.randperm(256)[:64].tolist())
    loader = torch.utils.data.DataLoader(part, batch_size=32, num_workers=1, multiprocessing_context="fork")
    for images, labels in loader:
        torch.nn.functional.cross_entropy(model(images), labels).backward()
""",
    "epochs of one batch": """
import torch
from common import Photos, make_model

model = make_model()
loader = torch.utils.data.DataLoader(
    Photos(32, dtype=torch.float32), batch_size=32, num_workers=1, multiprocessing_context="fork"
)
for epoch in range(8):
    for images, labels in loader:
        torch.nn.functional.cross_entropy(model(images), labels).backward()
""",
    "an endless loader": """
import itertools

import torch
from common import Photos, make_model


def main():
    model = make_model()
    loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32, shuffle=True)
    batches = itertools.cycle(loader)
    for step in range(20):
        images, labels = next(batches)  # trap: held-batches
        torch.nn.functional.cross_entropy(model(images), labels).backward()


main()
""",
    "an endless loader that is small and in order": """
import itertools

import torch
from common import Photos, make_model

model = make_model()
loader = torch.utils.data.DataLoader(Photos(64, dtype=torch.float32), batch_size=32)
for images, labels in itertools.islice(itertools.cycle(loader), 20):
    torch.nn.functional.cross_entropy(model(images), labels).backward()
""",
    "a thread that fills a queue": """
import queue
import threading
import time

import torch
from common import Photos, make_model


class Slow(Photos):
    def __getitem__(self, index):
        time.sleep(0.002)
        return super().__getitem__(index)


def feed(loader, batches):
    for batch in loader:
        batches.put(batch)
    batches.put(None)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = make_model().to(device)
    loader = torch.utils.data.DataLoader(Slow(640, dtype=torch.float32), batch_size=32)
    batches = queue.Queue(1)
    threading.Thread(target=feed, args=(loader, batches)).start()
    while (batch := batches.get()) is not None:
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        print(loss.item())  # trap: wait-each-step


main()
""",
    "two loaders side by side": """
import torch
from common import Photos, make_model

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
labelled = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32, pin_memory=True)
others = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32, pin_memory=True)
for (images, labels), (more, _) in zip(labelled, others):
    images, more = images.to(device, non_blocking=True), more.to(device, non_blocking=True)
    loss = torch.nn.functional.cross_entropy(model(images), labels.to(device, non_blocking=True)) + model(more).mean()
    loss.backward()
    print(loss.item())  # trap: wait-each-step
""",
    "callbacks that are called by name": """
import torch
from common import Photos, make_model


class Callback:
    def before_batch(self, learn):
        pass

    def after_batch(self, learn):
        pass


class ToDevice(Callback):
    def before_batch(self, learn):
        learn.xb, learn.yb = (each.to(device, non_blocking=True) for each in (learn.xb, learn.yb))


class Log(Callback):
    def after_batch(self, learn):
        print(learn.loss.item())  # trap: wait-each-step
        if learn.num % 100 == 0:
            print(learn.loss.cpu())


class Learner:
    def __init__(self, loader, model, callbacks):
        self.loader, self.model, self.callbacks = loader, model, callbacks

    def call(self, name):
        for callback in self.callbacks:
            getattr(callback, name)(self)

    def fit(self):
        for self.num, batch in enumerate(self.loader):
            self.xb, self.yb = batch
            self.call("before_batch")
            self.loss = torch.nn.functional.cross_entropy(self.model(self.xb), self.yb)
            self.loss.backward()
            self.call("after_batch")


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32, pin_memory=True)
Learner(loader, make_model().to(device), [ToDevice(), Log()]).fit()
""",
    "a loader in a library's wrapper": """
import torch
from common import Photos, make_model
from library import Wrapped

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)
loader = Wrapped(torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32), device)
for epoch in range(2):
    for step, (images, labels) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        print(loss.item())  # trap: wait-each-step
        if step % 100 == 0:
            print(loss.cpu())
""",
    "a function that a library's engine calls": """
import torch
from common import Photos, make_model
from library import Engine

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = make_model().to(device)


def update(engine, batch):
    images, labels = batch
    images = images.float().to(device, non_blocking=True)  # trap: cast-before-copy
    loss = torch.nn.functional.cross_entropy(model(images), labels.to(device, non_blocking=True))
    loss.backward()
    return loss.detach()


def report(engine, number):
    if number % 100 == 0:
        print(engine.output.item())


engine = Engine(update)
engine.handlers.append(report)
engine.run(torch.utils.data.DataLoader(Photos(), batch_size=32, pin_memory=True))
""",
    "a model and callbacks of a library's trainer": """
import torch
from common import Photos, make_model
from library import Trainer


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = make_model()

    def forward(self, images, labels):
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        self.last = loss.item()  # trap: wait-each-step
        return {"loss": loss}


class Log:
    def on_batch_end(self, trainer, outputs, number):
        print(float(outputs["loss"]))  # trap: wait-each-step


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32)
Trainer(Model().to(device), [Log()]).fit(loader)
""",
    "a library's engine on the CPU, and what is right there": """
import torch
from common import Photos, make_model
from library import Trainer


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = make_model()

    def forward(self, images, labels):
        return {"loss": torch.nn.functional.cross_entropy(self.net(images), labels)}


class Log:
    def __init__(self):
        self.losses = []

    def on_batch_end(self, trainer, outputs, number):
        self.losses.append(outputs["loss"])
        if number % 50 == 49:
            print(torch.stack(self.losses).mean().item())


Trainer(Model(), [Log()]).fit(torch.utils.data.DataLoader(Photos(dtype=torch.float32), batch_size=32))
""",
    "a model that takes lists": """
import torch
from common import Photos


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(16, 1)

    def forward(self, images):
        return self.net(torch.stack([image.float().mean((0, 1))[:16] for image in images])).mean()


def keep(samples):
    return [image for image, _ in samples]


model = Model()
loader = torch.utils.data.DataLoader(
    Photos(), batch_size=16, num_workers=1, collate_fn=keep, multiprocessing_context="fork"
)
for images in loader:
    model(images).backward()
""",
}
"""By a name."""
