"""Compiled kernels in the user's cache: kept, checked, and compiled again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.torch.cuda import compiler
from penstock.torch.cuda.compiler import choose_architecture, compile_kernels, load_or_compile
from penstock.torch.cuda.cubin_cache import find_cache_folder, read_cached, write_cached

CODE = b"\x7fELF" + bytes(range(256)) * 8


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = find_cache_folder()
    assert folder == tmp_path / "cache" / "penstock" / "kernels"
    return folder


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The architectures for which NVRTC was called; it returns ``CODE``."""
    architectures: list[str] = []

    def compile_one(architecture: str) -> bytes:
        architectures.append(architecture)
        return CODE

    monkeypatch.setattr(compiler, "_nvrtc_version", lambda: "13.2")
    monkeypatch.setattr(compiler, "compile_kernels", compile_one)
    return architectures


def test_kernels_are_compiled_once(cache: Path, compiled: list[str]) -> None:
    """The second process reads the file of the first one, which nobody else can write."""
    old = os.umask(0o002)
    try:
        assert [load_or_compile("sm_90") for _ in range(2)] == [CODE, CODE]
    finally:
        os.umask(old)
    (path,) = cache.iterdir()

    assert compiled == ["sm_90"]
    assert (path.stat().st_mode & 0o777, cache.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda _content: b"",
        lambda content: content[:40],
        lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
        lambda _content: CODE,
    ],
    ids=["truncated", "empty", "little", "flipped", "without a digest"],
)
def test_a_damaged_file_is_compiled_again_and_replaced(
    cache: Path, compiled: list[str], damage: Callable[[bytes], bytes]
) -> None:
    """Not an error for ever, whatever is left of it."""
    load_or_compile("sm_80")
    (path,) = cache.iterdir()
    path.write_bytes(damage(path.read_bytes()))

    assert [load_or_compile("sm_80") for _ in range(2)] == [CODE, CODE]
    assert compiled == ["sm_80", "sm_80"]
    assert [*cache.iterdir()] == [path]


def test_a_file_that_others_can_write_is_not_loaded(cache: Path, compiled: list[str]) -> None:
    """A driver would run what they wrote: the kernels are compiled, and the file is replaced."""
    load_or_compile("sm_80")
    (path,) = cache.iterdir()
    path.chmod(0o666)

    assert load_or_compile("sm_80") == CODE
    assert compiled == ["sm_80", "sm_80"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_of_another_user_is_neither_read_nor_written(
    cache: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process compiles then."""
    load_or_compile("sm_80")
    (path,) = cache.iterdir()
    before = path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: before.st_uid + 1)
    if before.st_uid == 0:  # files of root are trusted
        os.chown(path, 12345, -1)
        os.chown(cache, 12345, -1)

    assert load_or_compile("sm_80") == CODE
    assert compiled == ["sm_80", "sm_80"]
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_an_own_folder_that_others_can_write_is_closed_to_them(cache: Path) -> None:
    """As a folder of a wide umask is."""
    write_cached(cache / "x.cubin", CODE)
    cache.chmod(0o777)

    assert read_cached(cache / "x.cubin") == CODE
    assert cache.stat().st_mode & 0o777 == 0o755


def test_links_are_not_followed(cache: Path, tmp_path: Path) -> None:
    """A link may lead to a file of somebody else."""
    write_cached(tmp_path / "elsewhere" / "x.cubin", CODE)
    cache.mkdir(parents=True)
    (cache / "x.cubin").symlink_to(tmp_path / "elsewhere" / "x.cubin")

    assert read_cached(cache / "x.cubin") is None


@pytest.mark.parametrize("obstacle", ["a file", "a folder"])
def test_without_a_cache_each_process_compiles(cache: Path, compiled: list[str], obstacle: str) -> None:
    """A folder that cannot be read or written is no error."""
    if obstacle == "a file":
        cache.parent.parent.mkdir(parents=True)
        cache.parent.write_text("not a folder")
    else:
        load_or_compile("sm_90")
        (path,) = cache.iterdir()
        path.unlink()
        path.mkdir()
        compiled.clear()

    assert [load_or_compile("sm_90") for _ in range(2)] == [CODE, CODE]
    assert compiled == ["sm_90", "sm_90"]


def test_without_a_home_directory_each_process_compiles(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number without a name."""

    def refuse() -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", refuse)

    assert [load_or_compile("sm_90") for _ in range(2)] == [CODE, CODE]
    assert compiled == ["sm_90", "sm_90"]


def test_the_architecture_is_one_that_nvrtc_knows() -> None:
    """A newer device gets PTX of the newest older one, which its driver compiles; an older one gets an error."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC comes with torch for CUDA", exc_type=ImportError)
    from penstock.errors import ArgumentError

    assert choose_architecture(8, 0) == "sm_80"
    assert choose_architecture(9, 0) == "sm_90"
    newer = choose_architecture(99, 0)
    assert newer.startswith("compute_")
    with pytest.raises(ArgumentError, match=r"compute capability 3.5, and NVRTC .* decode='cpu'"):
        choose_architecture(3, 5)
    with pytest.raises(ArgumentError, match="cannot be compiled for sm_1000"):
        compile_kernels("sm_1000")


def test_ptx_rounds_as_the_code_for_a_device() -> None:
    """A driver that compiles PTX must not contract products and sums: each instruction states its rounding."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC comes with torch for CUDA", exc_type=ImportError)
    text = compile_kernels("compute_80").decode("ascii", "replace")

    for kind in ("f32", "f64"):
        assert f"mul.rn.{kind}" in text
        assert f"add.rn.{kind}" in text
        for contracted in (f"\tmul.{kind}", f"\tadd.{kind}", f"fma.rn.{kind}", f"mad.{kind}"):
            assert contracted not in text
