"""Fields that a source names itself never replace those of records."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from penstock.annotations import read


def test_elements_named_as_fields_of_records_are_kept(tmp_path: Path) -> None:
    """A VOC element named as a field of records is a field with an underscore; one named as an argument is not."""
    Image.new("RGB", (40, 32)).save(tmp_path / "a.png")
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox>"
    extra = "<line>3</line><boxes>x</boxes><labels>7</labels><crowd>1</crowd><self>2</self>"
    (tmp_path / "a.xml").write_text(
        f"<annotation><filename>a.png</filename><object><name>dog</name>{box}{extra}</object></annotation>"
    )

    (record,) = read(tmp_path, "voc")

    assert record["boxes"].tolist() == [[1, 2, 9, 8]]
    assert record["labels"].tolist() == [0]
    assert record["boxes_"] == ["x"]
    assert [record[name].tolist() for name in ("line", "labels_", "crowd_", "self")] == [[3], [7], [1], [2]]
