"""How well a name fits the usual ones."""

from __future__ import annotations

import pytest

from penstock.fields import names
from penstock.fields.names import IMAGE_NAMES, WORD, is_mask_name, rank_name


@pytest.mark.parametrize("listed", ["IMAGE_NAMES", "WEAK_IMAGE_NAMES", "LABEL_NAMES", "KEY_NAMES", "BOX_NAMES"])
def test_names_are_lower_case_and_different(listed: str) -> None:
    """Names are compared in lower case, and none is in a list twice."""
    found = getattr(names, listed)

    assert len(set(found)) == len(found)
    assert all(name == name.lower() for name in found)


def test_ranks_go_from_the_exact_name_to_a_word() -> None:
    """The exact path is best, then its last part, then another name in any case, its plural, a word of it."""
    ordered = ["image", "train/image", "IMG", "photo", "photos", "left_image"]

    ranks = [rank_name(path, IMAGE_NAMES) for path in ordered]

    assert None not in ranks
    assert ranks == sorted(ranks, key=str)
    assert ranks[-1] == (WORD, 0)


def test_a_part_that_says_nothing_gives_way_to_its_parent() -> None:
    """The bytes inside ``img`` are named by it."""
    assert rank_name("img.data", IMAGE_NAMES) == rank_name("img", IMAGE_NAMES)
    assert rank_name("image/encoded", IMAGE_NAMES) == (1, 0)
    assert rank_name("img.w", IMAGE_NAMES) is None


def test_names_of_masks() -> None:
    """A word of the name says that an image is a mask."""
    assert all(map(is_mask_name, ["mask", "gt_mask", "train/Segmentation", "seg", "semseg", "depth", "mask.bytes"]))
    assert not any(map(is_mask_name, ["image", "segment", "unmasked", "masks/image"]))
