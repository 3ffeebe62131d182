"""The page "Model", by mouse and by keys: steps, draws and batches of a loader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import penstock as ps
from penstock import transforms as T
from penstock.sample import Field
from tests.browser.conftest import wait_until
from tests.pack.images import picture
from tests.sheets.annotated_packs import write_pack


def noise(image: Any) -> Any:
    """A callable of the user."""
    return (image + ps.rng().integers(0, 9, image.shape)).clip(0, 255).astype(np.uint8)


@pytest.fixture
def loader(tmp_path: Path) -> Any:
    """Batches of four of ten pictures with boxes, of which a crop cuts some."""
    fields = {"image": Field("image"), "boxes": Field("boxes"), "labels": Field("int64[*]", ("<b>cat</b>", "dog"))}
    boxes = np.array([[2, 2, 12, 12], [13, 13, 19, 19]], np.float32)
    records = [{"image": picture(i), "boxes": boxes, "labels": np.array([0, 1])} for i in range(10)]
    store = write_pack(tmp_path / "boxes.lmdb", fields, records)
    ops = [T.Decode(), T.RandomResizedCrop(32, scale=(0.05, 0.3)), T.HorizontalFlip(), noise, T.Normalize(0.5, 0.25)]
    dataset = ps.StoreDataset(store, transform=[*ops, T.ToLayout("CHW")], ragged="list")
    return ps.DataLoader(dataset, 4, shuffle=True, seed=1)


def shown_step(page: Page) -> str:
    """The name of the step that is chosen."""
    return str(page.locator(".model-card[aria-pressed=true] .name").inner_text())


def test_steps_by_mouse_and_keys(page: Page, viewer_url: Callable[..., str], loader: Any) -> None:
    """Steps, records, epochs and seeds; the address has all of them."""
    page.goto(viewer_url(loader))  # a loader's viewer begins with this page
    expect(page.locator(".model-card")).to_have_count(6)
    assert page.locator(".model-card .name").all_inner_texts() == [
        "Original", "RandomResizedCrop", "HorizontalFlip", "noise", "Normalize", "ToLayout",
    ]  # fmt: skip
    assert shown_step(page) == "ToLayout"
    expect(page.locator(".model-original .outline")).to_have_count(1)

    page.locator(".model-card", has_text="RandomResizedCrop").click()
    assert shown_step(page) == "RandomResizedCrop"
    page.keyboard.press("ArrowRight")
    assert shown_step(page) == "HorizontalFlip"
    before = page.locator(".model-cards img").last.get_attribute("src")
    page.keyboard.press(".")
    expect(page.locator("#model-epoch")).to_have_value("1")
    expect(page.locator(".model-cards img").last).not_to_have_attribute("src", before or "")
    page.keyboard.press(">")
    expect(page.locator("#model-seed")).to_have_value("2")
    page.keyboard.press("PageDown")
    expect(page.locator("#model-record")).to_have_value("1")
    page.get_by_label("Epoch, slider").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#model-epoch")).to_have_value("2")
    address = page.evaluate("location.hash")
    for part in ("index=1", "epoch=2", "seed=2"):
        assert part in address

    page.locator("#model-seed").fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.locator("#model-seed")).to_have_value("2")


def test_layers_are_hidden_and_names_are_text(page: Page, viewer_url: Callable[..., str], loader: Any) -> None:
    """A name with tags is shown as it is."""
    page.goto(viewer_url(loader) + "#view=model&step=0")
    expect(page.locator(".model-original svg text").first).to_have_text("<b>cat</b>")

    page.keyboard.press("b")

    expect(page.locator(".model-original .edge")).to_have_count(0)
    assert "hide=boxes" in page.evaluate("location.hash")


def test_draws_and_batches(page: Page, viewer_url: Callable[..., str], loader: Any) -> None:
    """Sixteen epochs, sixteen seeds, and a batch whose samples lead back to their steps."""
    page.goto(viewer_url(loader) + "#view=model")
    expect(page.locator(".model-card")).to_have_count(6)

    page.keyboard.press("v")
    expect(page.locator(".model-tiles .name").last).to_have_text("Epoch 15")
    page.get_by_role("button", name="successive seeds").click()
    expect(page.locator(".model-tiles .name").last).to_have_text("Seed 16")
    page.keyboard.press("v")
    expect(page.locator("caption")).to_have_text("Batch 0 of 3, epoch 0, seed 1")
    expect(page.locator(".model-batch tbody tr")).to_have_count(3)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("caption")).to_have_text("Batch 2 of 3, epoch 0, seed 1")
    expect(page.locator(".model-tiles li")).to_have_count(2)
    record = page.locator(".model-tiles .name").first.inner_text()
    page.locator(".model-tiles button").first.click()
    expect(page.locator("#model-record")).to_have_value(record.removeprefix("Record "))


def test_an_error_of_the_users_code_is_said(page: Page, viewer_url: Callable[..., str], loader: Any) -> None:
    """With the type and the line; other records are still shown."""

    def fail(image: Any) -> Any:
        if min(image.shape[:2]) == 32:
            raise ValueError("<i>too small</i>")
        return image

    loader.dataset.transform = [T.Decode(), T.Resize(32), fail]
    page.goto(viewer_url(loader) + "#view=model")

    expect(page.get_by_role("alert")).to_contain_text("<i>too small</i>")
    expect(page.get_by_role("alert")).to_contain_text("test_model.py, line")


def test_how_it_looks(
    page: Page, viewer_url: Callable[..., str], loader: Any, screenshot: Callable[[str], None],
    find_barriers: Callable[[Page], list[str]],
) -> None:  # fmt: skip
    """Nothing is wider than the page, at any width, and nothing keeps people from using it."""
    url = viewer_url(loader)
    for tab, marks in (("steps", ".model-card"), ("draws", ".model-tiles li"), ("batch", ".model-batch td")):
        page.goto(f"{url}#view=model&modeltab={tab}&index=3")
        expect(page.locator(marks).first).to_be_visible()
        screenshot(f"model-{tab}")
        assert not find_barriers(page), tab
        page.set_viewport_size({"width": 400, "height": 800})
        wait_until(page, "document.querySelector('.model-body').scrollWidth <= 400")
        page.set_viewport_size({"width": 1280, "height": 800})
