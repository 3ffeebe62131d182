"""The command ``demo`` runs a folder of the checkout, and says where it is when it is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import demo_command, main


def test_the_folder_of_the_demo_lies_in_a_checkout() -> None:
    """What the command looks for is there, beside the package."""
    assert (demo_command.EXAMPLES / "demo" / "tour.py").is_file()


def test_options_reach_the_demo(tmp_path: Path) -> None:
    """The command runs ``run`` of the folder with its options."""
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "tour.py").touch()
    (tmp_path / "demo" / "__init__.py").write_text("def run(*given, **named): print(*given, named)")
    code = (
        "import sys, pathlib\nfrom penstock.cli import demo_command, main\n"
        "demo_command.EXAMPLES = pathlib.Path(sys.argv.pop(1))\nmain()"
    )

    command = [sys.executable, "-c", code, str(tmp_path), "demo", "--images", "mine", "--output", "out", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == "mine out {'quick': True}\n"


def test_without_the_folder_it_says_where_the_demo_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a wheel: one sentence that names the folder, and exit code 1."""
    monkeypatch.setattr(demo_command, "EXAMPLES", tmp_path / "examples")
    monkeypatch.setattr(sys, "argv", ["penstock", "demo"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 1
    assert "in examples/demo, and run `make demo` there" in " ".join(capsys.readouterr().err.split())
