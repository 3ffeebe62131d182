"""The rule by which a column becomes the image, the label or the key."""

from __future__ import annotations

import pytest

from penstock.errors import ArgumentError
from penstock.fields.names import KEY_NAMES, LABEL_NAMES
from penstock.fields.roles import Candidate, Roles, Stated, choose_roles, select_paths
from penstock.sample import Field


def choose(columns: dict[str, str], stated: Stated | None = None) -> Roles:
    """The roles of columns of these kinds."""
    return choose_roles([Candidate(path, Field(kind)) for path, kind in columns.items()], stated or Stated())


def origins(roles: Roles) -> dict[str, str]:
    """The column of each field."""
    return {name: each.path for name, each in roles.fields.items()}


@pytest.mark.parametrize(
    ("columns", "image"),
    [
        ("left", "left"),
        ("thumbnail photo", "photo"),
        ("jpg image", "image"),
        ("png jpg", "jpg"),
        ("data x", "x"),
        ("x left_image", "left_image"),
        ("mask left", "left"),
        ("meta.image image", "image"),
        ("image/encoded thumbnail/encoded", "image/encoded"),
        ("y x", "x"),
    ],
)
def test_the_best_name_is_the_image(columns: str, image: str) -> None:
    """Of several images, the one with the best name is the image."""
    roles = choose(dict.fromkeys(columns.split(), "image"))

    assert origins(roles)["image"] == image


@pytest.mark.parametrize("columns", ["left right", "left_image right_image", "a/image b/image"])
def test_equally_good_images_are_refused(columns: str) -> None:
    """The error lists the candidates and the option that chooses one; no image and ``fields`` are answers, too."""
    one, other = columns.split()
    both = dict.fromkeys((one, other), "image")

    with pytest.raises(
        ArgumentError, match=f"'{one}', '{other}' may be the image; say image='{one}' .* or image='' for none"
    ):
        choose(both)
    assert "image" not in choose(both, Stated(image="")).fields
    assert "image" not in choose(both, Stated(fields=[one, other])).fields
    assert origins(choose(both, Stated(image=other)))["image"] == other


def test_contents_beat_names() -> None:
    """Bytes that are no images are not the image, whatever they are called; the role has the name."""
    roles = choose({"image": "bytes", "photo": "image"})

    assert origins(roles) == {"image_": "image", "image": "photo"}
    assert "'image' holds bytes that are no encoded images" in roles.describe()


def test_a_mask_is_no_image_unless_it_is_stated() -> None:
    """Encoded masks have the kind mask."""
    assert choose({"gt_mask": "image", "label": "int"}).schema["gt_mask"] == Field("mask")
    assert choose({"gt_mask": "image"}, Stated(image="gt_mask")).schema["image"] == Field("image")


@pytest.mark.parametrize("first", range(len(LABEL_NAMES) - 1))
def test_earlier_names_of_labels_are_preferred(first: int) -> None:
    """Of two columns of numbers with usual names, the earlier name is the label."""
    names = LABEL_NAMES[first], LABEL_NAMES[first + 1]

    assert origins(choose({names[1]: "int", names[0]: "int"}))["label"] == names[0]


@pytest.mark.parametrize(
    ("columns", "label"),
    [
        ({"label": "text", "class_id": "int"}, "label"),
        ({"class": "text", "target": "float"}, "target"),
        ({"target": "int64[*]", "class": "text"}, "class"),
        ({"fine_label": "int", "size": "int"}, "fine_label"),
        ({"kind": "label", "size": "int"}, "kind"),
        ({"image": "image", "labels": "int64[*]", "boxes": "float32[*,4]"}, None),
        ({"fine_label": "int", "coarse_label": "int"}, None),
        ({"pos_x": "int", "pos_y": "int"}, None),
        ({"classes": "int"}, None),
        ({"label": "json"}, None),
        ({"train_set_x": "image", "train_set_y": "int"}, "train_set_y"),
    ],
)
def test_which_column_is_the_label(columns: dict[str, str], label: str | None) -> None:
    """The name label wins; then numbers before texts before lists; then a word; then the only column of classes."""
    roles = choose(columns)

    found = roles.fields.get("label")
    assert (None if found is None or found.field.kind == "json" else found.path) == label


@pytest.mark.parametrize("first", range(len(KEY_NAMES) - 1))
def test_earlier_names_of_keys_are_preferred(first: int) -> None:
    """Of two columns of texts with usual names, the earlier name has the keys."""
    names = KEY_NAMES[first], KEY_NAMES[first + 1]

    assert choose({names[1]: "text", names[0]: "text"}).key == names[0]


def test_keys_are_texts_that_name_the_record() -> None:
    """Numbers are keys if they are stated; the name of a class inside a label is none; bytes never are."""
    columns = {"image": "image", "label.name": "text", "id": "int", "extra": "bytes"}

    assert choose(columns).key is None
    assert choose(columns, Stated(key="id")).key == "id"
    assert choose({**columns, "image.path": "text"}).key == "image.path"
    with pytest.raises(ArgumentError, match="key must hold texts or integers, got 'extra'"):
        choose(columns, Stated(key="extra"))


def test_empty_says_none() -> None:
    """An empty text says that there is no image, label or key."""
    roles = choose({"photo": "image", "cls": "int", "name": "text"}, Stated(image="", label="", key=""))

    assert origins(roles) == {"photo": "photo", "cls": "cls", "name": "name"}
    assert roles.key is None


def test_a_mapping_names_fields_and_roles() -> None:
    """Fields of a mapping are those of the store; image and label are what it says, or none."""
    columns = {"left": "image", "right": "image", "kind": "int", "cls": "int"}
    stated = Stated(fields={"image": "right", "number": "kind"})

    assert select_paths(columns, stated) == ["right", "kind"]
    roles = choose(columns, stated)
    assert origins(roles) == {"image": "right", "number": "kind"}


def test_items_of_tuples_have_roles_by_what_they_hold() -> None:
    """The only image is the image, the only whole number beside it the label."""
    assert origins(choose({"0": "int", "1": "image", "2": "float"})) == {"label": "0", "image": "1", "2": "2"}
    assert origins(choose({"0": "image", "1": "int", "2": "int"})) == {"image": "0", "1": "1", "2": "2"}


@pytest.mark.parametrize(("option", "path"), [("image", "cls"), ("label", "photo")])
def test_what_is_stated_must_fit(option: str, path: str) -> None:
    """An image must hold images, a label numbers or texts."""
    with pytest.raises(ArgumentError, match=f"{option} must .*'{path}'"):
        choose({"photo": "image", "cls": "int"}, Stated(**{option: path}))
