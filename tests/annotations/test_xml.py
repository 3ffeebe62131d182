"""XML is read in the encoding that it declares."""

from __future__ import annotations

import pytest

from penstock.annotations.xml import parse_xml


@pytest.mark.parametrize(
    ("declared", "written", "text"),
    [
        ("GBK", "gbk", "猫"), ("gb2312", "gbk", "囍"), ("GB18030", "gb18030", "😀"), ("Big5", "big5", "貓"),
        ("Shift_JIS", "shift_jis", "猫"), ("EUC-JP", "euc_jp", "猫"), ("EUC-KR", "euc_kr", "고양이"),
        ("windows-1251", "cp1251", "кот"), ("ISO-8859-1", "latin-1", "né"), ("UTF-16", "utf-16", "猫"),
    ],
)  # fmt: skip
def test_text_is_that_of_the_declared_encoding(declared: str, written: str, text: str) -> None:
    """Also of encodings with several bytes for a character, which expat does not know; lines stay."""
    content = f'<?xml version="1.0" encoding="{declared}"?>\n<a>\n<b>{text}</b></a>'.encode(written)

    root = parse_xml(content)

    assert root.find_text("b") == text
    assert root.children[0].line == 3


@pytest.mark.parametrize("declared", ["GBK", "no-such", "punycode", "zip", "rot13"])
def test_another_text_than_the_declared_one_is_no_xml(declared: str) -> None:
    """Codecs that are no encodings of text are not called."""
    content = b'<?xml version="1.0" encoding="%s"?><a>\xff\xff</a>' % declared.encode()

    with pytest.raises(ValueError, match=r"declares, got other bytes at|it is no XML"):
        parse_xml(content)
