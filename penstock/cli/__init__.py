"""The command ``penstock``: one function for each command, which calls the package and prints the result.

Exit codes: 0 success, 1 failure or problems found by ``verify``, 2 wrong usage, 130 interrupted. Results are printed to
standard output. Progress and errors are printed to standard error; an error is a message without a traceback.
"""

from __future__ import annotations

from penstock.cli import (  # registers the commands
    cache_commands,
    convert_commands,
    doctor_commands,
    help_commands,
    init_command,
    pack_commands,
    plan_command,
    show_command,
    verify_commands,
    view_commands,
    viewer_command,
)
from penstock.cli.app import app, group_commands, main

__all__ = [
    "app",
    "cache_commands",
    "convert_commands",
    "doctor_commands",
    "help_commands",
    "init_command",
    "main",
    "pack_commands",
    "plan_command",
    "show_command",
    "verify_commands",
    "view_commands",
    "viewer_command",
]

group_commands(
    {
        "Begin": ("init", "demo"),
        "Look at data": ("info", "view", "show", "verify"),
        "Prepare data": ("pack", "convert", "split", "merge", "index", "copy"),
        "Make a training faster": ("doctor", "tune", "plan"),
        "Understand an error": ("explain", "env"),
        "Stores in object storage": ("cache",),
    }
)
