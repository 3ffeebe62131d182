"""Which of torchvision's transforms are recognised, as which ops, and where recognition ends."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

from torchvision import tv_tensors  # noqa: E402  # behind the skip
from torchvision.transforms import InterpolationMode, v2  # noqa: E402
from torchvision.transforms import transforms as v1  # noqa: E402

from penstock.torch.vision.recognise import ImageType, recognise  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALIZE = f"Normalize(mean={MEAN}, std={STD})"
CHW8 = "ToLayout(layout='CHW', dtype='uint8')"
CHW32 = "ToLayout(layout='CHW', dtype='float32')"
CHW16 = "ToLayout(layout='CHW', dtype='float16')"
FLOAT, HALF = torch.float32, torch.float16

RECOGNISED: list[tuple[Any, list[str]]] = [
    (v1.Resize(256), ["Resize(256, filter='bilinear')"]),
    (v1.Resize([256]), ["Resize(256, filter='bilinear')"]),
    (v2.Resize((3, 4), interpolation="box"), ["Resize((3, 4), filter='box')"]),
    (v2.Resize(9, interpolation=InterpolationMode.BICUBIC), ["Resize(9, filter='bicubic')"]),
    (v2.Resize(9, interpolation=1), ["Resize(9, filter='lanczos')"]),
    (v1.Resize(9, max_size=12, antialias=False), ["Resize(9, filter='bilinear', max_size=12)"]),
    (v1.CenterCrop(5), ["CenterCrop((5, 5))"]),
    (v2.CenterCrop([5]), ["CenterCrop((5, 5))"]),
    (v1.RandomCrop((4, 5), padding=2), ["RandomCrop((4, 5), padding=(2, 2, 2, 2), pad_if_needed=False)"]),
    (v1.RandomCrop(4, (1, 2, 3, 4), True), ["RandomCrop((4, 4), padding=(1, 2, 3, 4), pad_if_needed=True)"]),
    (v2.RandomCrop(4, (1, 2, 3, 4), True), ["RandomCrop((4, 4), padding=(1, 2, 3, 4), pad_if_needed=True)"]),
    (v2.RandomCrop(4, (1, 2)), ["RandomCrop((4, 4), padding=(1, 2, 1, 2), pad_if_needed=False)"]),
    (
        v1.RandomCrop(4, 1, fill=7),
        ["RandomCrop((4, 4), padding=(1, 1, 1, 1), pad_if_needed=False, fill=(7, 7, 7))"],
    ),
    (
        v2.RandomCrop(4, 1, True, fill=None, padding_mode="reflect"),
        ["RandomCrop((4, 4), padding=(1, 1, 1, 1), pad_if_needed=True, padding_mode='reflect')"],
    ),
    (v1.RandomCrop(4, fill=7, padding_mode="edge"), ["RandomCrop((4, 4), padding=(0, 0, 0, 0), pad_if_needed=False)"]),
    (
        v1.RandomResizedCrop(8, (0.2, 0.5), (1.0, 2.0)),
        ["RandomResizedCrop((8, 8), scale=(0.2, 0.5), ratio=(1.0, 2.0), filter='bilinear')"],
    ),
    (
        v2.RandomResizedCrop((8, 9), scale=[0.2, 0.5], ratio=(1.0, 1.0), interpolation="bicubic"),
        ["RandomResizedCrop((8, 9), scale=(0.2, 0.5), ratio=(1.0, 1.0), filter='bicubic')"],
    ),
    (v1.RandomHorizontalFlip(0.3), ["HorizontalFlip(p=0.3)"]),
    (v2.RandomVerticalFlip(), ["VerticalFlip(p=0.5)"]),
    (v1.ToTensor(), [CHW32]),
    (v1.PILToTensor(), [CHW8]),
    (v2.ToImage(), [CHW8]),
    (v2.Identity(), []),
    (torch.nn.Identity(), []),
    (v1.Compose([v1.PILToTensor(), v1.ConvertImageDtype(HALF)]), [CHW16]),
    (v2.Compose([v2.ToDtype(FLOAT, scale=True), v2.PILToTensor()]), [CHW8]),
    (v2.Compose([v2.ToImage(), v2.ToDtype(torch.uint8), v2.ToPureTensor(), v2.PILToTensor()]), [CHW8]),
    (v2.Compose([v2.ToImage(), v2.ToDtype({tv_tensors.Image: FLOAT, "others": None}, scale=True)]), [CHW32]),
    (v2.Compose([v2.PILToTensor(), v2.ToDtype({tv_tensors.Image: FLOAT, "others": None}, scale=True)]), [CHW8]),
    (v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD, inplace=True)]), [NORMALIZE, CHW32]),
    (v2.Compose([v2.ToImage(), v2.ConvertImageDtype(FLOAT), v2.Normalize(list(MEAN), list(STD))]), [NORMALIZE, CHW32]),
    (v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD), v2.ToDtype(HALF)]), [NORMALIZE, CHW16]),
    (v1.Compose([v1.ToTensor(), v1.Normalize([0.5], [0.25])]), ["Normalize(mean=(0.5,), std=(0.25,))", CHW32]),
    (
        v2.Compose([v1.Compose([v1.RandomHorizontalFlip()]), torch.nn.Sequential(v2.ToImage())]),
        ["HorizontalFlip(p=0.5)", CHW8],
    ),
    (
        torchvision.models.ResNet18_Weights.IMAGENET1K_V1.transforms(),
        ["Resize(256, filter='bilinear')", "CenterCrop((224, 224))", NORMALIZE, CHW32],
    ),
]


@pytest.mark.parametrize(("transform", "ops"), RECOGNISED, ids=lambda value: type(value).__name__)
def test_what_is_recognised(transform: Any, ops: list[str]) -> None:
    """Each transform becomes its op with the same settings, and nothing remains."""
    found = recognise(transform)

    assert [repr(op) for op in found.ops] == ops
    assert found.remaining == ()
    assert found.reason == ""


class MyFlip(v1.RandomHorizontalFlip):  # type: ignore[misc]  # torchvision ships no types
    """A user's subclass."""


def hooked() -> Any:
    """A transform with a hook."""
    transform = v1.RandomHorizontalFlip()
    transform.register_forward_hook(lambda module, args, output: output)
    return transform


def patched() -> Any:
    """A transform with a replaced method."""
    transform = v2.CenterCrop(5)
    transform.transform = lambda inpt, params: inpt
    return transform


TENSOR: list[Any] = [v1.PILToTensor()]
IMAGE: list[Any] = [v2.ToImage()]
LEFT: list[tuple[list[Any], Any, str]] = [
    ([], MyFlip(), "no op for it"),
    ([], lambda image: image, "no op for it"),
    ([], v1.RandomApply([v1.RandomHorizontalFlip()]), "no op for it"),
    ([], v1.ColorJitter(0.4), "no op for it"),
    ([], hooked(), "hook"),
    ([], patched(), "method of its own"),
    ([], v1.Resize(9, InterpolationMode.NEAREST), "interpolation nearest"),
    ([], v2.RandomResizedCrop(9, interpolation="hamming"), "interpolation hamming"),
    ([], v2.Resize(None, max_size=9), "size=None"),
    ([], v1.Resize((9, 9), max_size=10), "max_size"),
    ([], v1.RandomCrop(9, 1, True, padding_mode="reflect"), "too small twice"),
    ([], v1.RandomCrop(9, 1, fill=(0.5, 0.5, 0.5)), "in [0, 255]"),
    ([], v2.RandomCrop(9, 1, fill={tv_tensors.Image: 3}), "fill must be a number"),
    (TENSOR, v1.RandomCrop(9, 1, fill=(1, 2, 3)), "fill=(1, 2, 3) for a uint8 tensor"),
    ([v1.ToTensor()], v1.RandomCrop(9, 1, fill=1), "fill=1 for a float32 tensor"),
    ([], v1.RandomHorizontalFlip(1.5), "1.5"),
    ([], v1.Normalize(MEAN, STD), "takes float tensors"),
    ([], v1.ConvertImageDtype(FLOAT), "takes tensors"),
    (TENSOR, v1.Normalize(MEAN, STD), "takes float tensors"),
    (TENSOR, v1.ToTensor(), "takes PIL images"),
    (TENSOR, v1.Resize(9, antialias=False), "without antialiasing"),
    (TENSOR, v2.Resize(9, antialias=None), "without antialiasing"),
    (TENSOR, v2.Resize(9, "bicubic"), "bicubic on tensors"),
    (TENSOR, v2.ToDtype(FLOAT), "scale=False"),
    (TENSOR, v2.ToDtype(torch.float64, scale=True), "float64"),
    (TENSOR, v2.ToDtype({tv_tensors.Image: FLOAT}, scale=True), "neither this type nor 'others'"),
    (IMAGE, v1.CenterCrop(9), "v1 transform after v2"),
    ([v1.ToTensor()], v1.Resize(9), "without rounding"),
    ([v1.ToTensor()], v2.ToDtype(torch.uint8, scale=True), "floats to uint8"),
    ([v1.ToTensor()], v1.Normalize(MEAN, (1.0, 0.0, 1.0)), "std"),
    ([v1.ToTensor()], v1.Normalize((0.5, 0.5), (0.5, 0.5)), "one number or three"),
    ([v1.ToTensor()], v1.Normalize((0.5,), STD), "one number or three"),
]


@pytest.mark.parametrize(("before", "transform", "reason"), LEFT)
def test_what_is_left_as_it_is(before: list[Any], transform: Any, reason: str) -> None:
    """A transform that penstock would compute differently ends the list, with a reason, and is not changed."""
    last = v1.RandomHorizontalFlip()

    found = recognise(v1.Compose([*before, transform, last]))

    assert found.remaining == (transform, last)
    assert len(found.names) == len(before)
    assert reason in found.reason
    assert reason in str(found)


def test_the_rest_is_given_what_torchvision_would_have_given() -> None:
    """The image type after the last recognised transform is torchvision's."""
    unknown = v1.Lambda(lambda value: value)

    found = {
        len(steps): recognise(v1.Compose([*steps, unknown])).image_type
        for steps in (
            [v1.CenterCrop(3)],
            [v1.CenterCrop(3), v1.ToTensor()],
            [v2.Identity(), v2.Identity(), v2.ToImage()],
        )
    }

    assert found == {1: ImageType("pil", "uint8"), 2: ImageType("tensor", "float32"), 3: ImageType("image", "uint8")}


def test_another_default_dtype_is_left() -> None:
    """ToTensor returns torch's default dtype, so it is not translated for another default dtype than float32."""
    torch.set_default_dtype(torch.float64)
    try:
        found = recognise(v1.ToTensor())
    finally:
        torch.set_default_dtype(torch.float32)

    assert "float64" in found.reason
    assert found.names == ()
