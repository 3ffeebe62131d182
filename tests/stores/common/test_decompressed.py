"""Files that are decompressed once: members, damage, limits, names that follow the source."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptRecordError, StoreError
from penstock.stores.common import decompressed
from penstock.stores.common.compression import CODECS, DecompressedFile, decompress_chunks
from penstock.stores.common.decompressed import DecompressedCopies

CONTENT = bytes(range(256)) * 5_000


def compress(content: bytes, codec: str) -> bytes:
    """Compressed bytes of a codec."""
    own: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress, "zlib": zlib.compress, "bz2": bz2.compress, "xz": lzma.compress,
    }  # fmt: skip
    if codec in own:
        return own[codec](content)
    return bytes(pa.Codec("brotli" if codec == "br" else codec).compress(content, asbytes=True))


@pytest.mark.parametrize("codec", CODECS)
def test_the_decompressed_bytes_are_those_that_were_compressed(tmp_path: Path, codec: str) -> None:
    """Every codec gives its content, in a file that only those may read who may read the source."""
    source = tmp_path / "content"
    source.write_bytes(compress(CONTENT, codec))
    source.chmod(0o640)

    path = DecompressedCopies([source]).find(source, codec, nbytes=len(CONTENT))

    assert path.read_bytes() == CONTENT
    assert path.stat().st_mode & 0o777 == 0o640
    assert DecompressedCopies([source]).find(source, codec, nbytes=len(CONTENT)) == path


@pytest.mark.parametrize("codec", ["gz", "bz2", "xz"])
def test_members_follow_one_another(codec: str) -> None:
    """Files that were appended to each other are one content, as the programs gzip and bzip2 read them."""
    joined = b"".join(compress(part, codec) for part in (b"one", b"", CONTENT, b"three"))

    assert b"".join(decompress_chunks(io.BytesIO(joined), codec)) == b"one" + CONTENT + b"three"


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "snappy"])
@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_a_truncated_file_is_damage(tmp_path: Path, codec: str, cut: int) -> None:
    """A file that ends early is an error that names it, and leaves nothing behind."""
    source = tmp_path / "content"
    source.write_bytes(compress(CONTENT, codec)[:cut])

    with pytest.raises(CorruptRecordError, match="content is damaged"):
        DecompressedCopies([source]).find(source, codec, nbytes=len(CONTENT))
    assert list(tmp_path.iterdir()) == [source]


def test_another_size_than_expected_is_damage(tmp_path: Path) -> None:
    """Fewer and more bytes than the index of a container states are refused."""
    source = tmp_path / "content"
    source.write_bytes(gzip.compress(CONTENT))

    for nbytes in (len(CONTENT) - 1, len(CONTENT) + 1, 1 << 39):
        with pytest.raises(CorruptRecordError, match="decompress"):
            DecompressedCopies([source]).find(source, "gz", nbytes=nbytes)


def test_a_file_of_unknown_size_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that decompresses to very much more than its size is refused before the disk is full."""
    monkeypatch.setattr(decompressed, "_LEAST_LIMIT", 1 << 20)
    source = tmp_path / "content"
    source.write_bytes(gzip.compress(bytes(3 << 20)))

    with pytest.raises(StoreError, match="has more than the 1048576 bytes"):
        DecompressedCopies([source]).find(source, "gz")


def test_no_space_anywhere_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be written, the error names both places and what to do."""
    source = tmp_path / "content"
    source.write_bytes(gzip.compress(CONTENT))
    monkeypatch.setenv("XDG_CACHE_HOME", str(source))  # a file: no folder can be made in it

    def refuse(path: Path, prefix: str = "") -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("penstock.stores.common.decompressed.replacing_file", refuse)

    with pytest.raises(StoreError, match="decompress it, make space, or name another folder"):
        DecompressedCopies([source]).find(source, "gz")


@given(content=st.binary(max_size=300), codec=st.sampled_from(CODECS))
def test_any_bytes_are_decompressed_or_refused(content: bytes, codec: str) -> None:
    """Bytes that are no compressed file are an error of the kinds that are stated."""
    magic = {
        "gz": b"\x1f\x8b\x08\0",
        "bz2": b"BZh9",
        "zstd": b"\x28\xb5\x2f\xfd",
        "zlib": b"\x78\x9c",
        "xz": b"\xfd7zXZ\0",
    }.get(codec, b"")

    for each in (content, magic + content):
        with contextlib.suppress(ValueError, EOFError):
            b"".join(decompress_chunks(io.BytesIO(each), codec, 100))


@pytest.mark.parametrize("codec", ["gz", "bz2", "xz"])
@given(sizes=st.lists(st.integers(1, 3000), max_size=20))
@settings(max_examples=settings().max_examples // 8)
def test_reading_forward_gives_the_same_bytes(codec: str, sizes: list[int]) -> None:
    """Reads of any size give the content without gaps, and nothing at its end."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "content")
        source.write_bytes(compress(CONTENT[:20_000], codec))

        with DecompressedFile(source, codec) as file:
            found = [file.read(size) for size in sizes]
            assert b"".join(found) == CONTENT[: min(sum(sizes), 20_000)]
            assert len(file.read(1 << 20)) == max(0, 20_000 - sum(sizes))
            assert file.read(1) == b""


def test_all_copies_of_a_store_share_one_limit(tmp_path: Path) -> None:
    """Copies that are there count, also if another process made them; those of other stores do not."""
    sources = [tmp_path / f"{number}.gz" for number in range(3)]
    for source in sources:
        source.write_bytes(gzip.compress(CONTENT))
    for cache in (None, tmp_path / "cache"):
        DecompressedCopies(sources, cache).find(sources[2], "gz")
        first = DecompressedCopies(sources[:2], cache, 2 * len(CONTENT) - 1).find(sources[0], "gz")

        with pytest.raises(StoreError, match="cache_nbytes="):
            DecompressedCopies(sources[:2], cache, 2 * len(CONTENT) - 1).find(sources[1], "gz")
        assert first.parent == (cache or tmp_path)
        assert DecompressedCopies(sources[:2], cache, 2 * len(CONTENT)).find(sources[1], "gz").read_bytes() == CONTENT
