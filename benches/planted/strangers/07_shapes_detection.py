"""One-stage detector in the style of the torchvision references.

Boxes are xyxy; a target has the keys that the COCO evaluation wants.
"""
import json
import os
import sys
import time

import cv2
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def collate_fn(batch):
    return tuple(zip(*batch))


class Compose(object):
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image, target):
        for t in self.transforms:
            image, target = t(image, target)
        return image, target


class ToFloat(object):
    def __call__(self, image, target):
        return image.float().div_(255), target


class RandomHorizontalFlip(object):
    def __init__(self, p):
        self.p = p

    def __call__(self, image, target):
        if torch.rand(()).item() < self.p:
            image = image.flip(-1)
            boxes = target["boxes"]
            boxes[:, [0, 2]] = image.shape[-1] - boxes[:, [2, 0]]
        return image, target


class ShapesDetection(Dataset):
    def __init__(self, root, transforms):
        with open(os.path.join(root, "instances.json")) as f:
            coco = json.load(f)
        self.anns = {}
        for a in coco["annotations"]:
            self.anns.setdefault(a["image_id"], []).append(a)
        self.ids = [im["id"] for im in coco["images"]]
        # small enough for RAM
        self.images = []
        for im in coco["images"]:
            bgr = cv2.imread(os.path.join(root, "images", im["file_name"]))
            self.images.append(torch.from_numpy(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)).permute(2, 0, 1).contiguous())
        self._transforms = transforms

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, idx):
        img = self.images[idx]
        anns = self.anns[self.ids[idx]]
        boxes = torch.as_tensor([a["bbox"] for a in anns], dtype=torch.float32)
        boxes[:, 2:] += boxes[:, :2]
        target = {
            "boxes": boxes,
            "labels": torch.as_tensor([a["category_id"] for a in anns], dtype=torch.int64),
            "image_id": torch.tensor([self.ids[idx]]),
            "area": torch.as_tensor([a["area"] for a in anns], dtype=torch.float32),
            "iscrowd": torch.as_tensor([a["iscrowd"] for a in anns], dtype=torch.uint8),
            "orig_size": torch.as_tensor(img.shape[-2:]),
            "size": torch.as_tensor(img.shape[-2:]),
        }
        return self._transforms(img, target)


class GridDetector(nn.Module):
    """Class scores and a box for each of the cells of a grid."""

    stride = 8

    def __init__(self, num_classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 4, stride=4), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU()
        )
        self.cls = nn.Conv2d(24, num_classes, 1)
        self.reg = nn.Conv2d(24, 4, 1)
        nn.init.constant_(self.cls.bias, -3.0)

    def forward(self, images, targets):
        x = self.body(torch.stack(images))
        scores, boxes = self.cls(x), self.reg(x)
        wanted = torch.zeros_like(scores)
        where, goal = [], []
        for n, t in enumerate(targets):
            cells = ((t["boxes"][:, :2] + t["boxes"][:, 2:]) / 2 / self.stride).long().clamp_(0, scores.shape[-1] - 1)
            wanted[n, t["labels"], cells[:, 1], cells[:, 0]] = 1
            where.append(torch.stack([torch.full_like(cells[:, 0], n), cells[:, 1], cells[:, 0]]))
            goal.append(t["boxes"])
        n, r, c = torch.cat(where, 1)
        return {
            "loss_cls": nn.functional.binary_cross_entropy_with_logits(scores, wanted) * 10,
            "loss_box": nn.functional.smooth_l1_loss(boxes[n, :, r, c], torch.cat(goal) / 64),
        }


def train_one_epoch(model, optimizer, data_loader, epoch, print_freq=25):
    model.train()
    seen = 0
    for i, (images, targets) in enumerate(data_loader):
        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        seen += len(images)
        if i % print_freq == 0:
            text = "  ".join("%s: %.4f" % (k, v.item()) for k, v in loss_dict.items())
            print("Epoch: [%d]  [%3d/%d]  %s" % (epoch, i, len(data_loader), text))
    return seen


def main(root):
    dataset = ShapesDetection(root, Compose([ToFloat(), RandomHorizontalFlip(0.5)]))
    data_loader = DataLoader(
        dataset, batch_size=16, shuffle=True, num_workers=2, collate_fn=collate_fn, persistent_workers=True
    )
    model = GridDetector(num_classes=5)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.02, momentum=0.9, weight_decay=1e-4)
    lr_scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[10, 13], gamma=0.1)
    start, seen = time.time(), 0
    for epoch in range(15):
        seen += train_one_epoch(model, optimizer, data_loader, epoch)
        lr_scheduler.step()
    print("%.1f samples/s" % (seen / (time.time() - start)))


if __name__ == "__main__":
    main(os.path.join(sys.argv[1], "shapes"))
