"""The command ``penstock``: one function for each command, which calls the package and prints the result.

Exit codes: 0 success, 1 failure or problems found by ``verify``, 2 wrong usage, 130 interrupted. Results are printed to
standard output. Progress and errors are printed to standard error; an error is a message without a traceback.

Where to find what:

- which commands, options and exit codes there are: the table below; ``docs/command-line.md``
- streams and errors of all commands: ``app.py``; JSON: ``printing.py``
- what ``penstock demo`` runs: ``demo_command.py``, ``examples/demo/``, photographs of ``penstock/demo/``
"""

from __future__ import annotations

from penstock.cli.app import app, main, register_commands

__all__ = ["app", "main"]

register_commands(
    {
        "Begin": {
            "penstock.cli.init_command:init": "Write a short training script for what lies in FOLDER, and say what was "
            "recognised.",
            "penstock.cli.demo_command:demo": "Pack photographs, compare loading speed with torch's loader, train on "
            "them, stop and resume.",
        },
        "Look at data": {
            "penstock.cli.view_commands:info": "Show what STORE contains: what was detected, fields, classes, and the "
            "sizes and formats of its images.",
            "penstock.viewer.command:view": "Look at STORE, at what a loader of a script makes of it (FILE.py:NAME), "
            "or at running loaders, in a browser.",
            "penstock.cli.show_command:show": "Draw samples of STORE with their boxes, class names, keypoints and "
            "masks, before and after augmentation.",
            "penstock.cli.rewind_command:rewind": "Say what a step saw, from a saved state of a loader: records, "
            "random draws, and the crops again.",
            "penstock.cli.verify_commands:verify": "Check every page, checksum, count and key of STORE; of a container "
            "of another program, read every record.",
            "penstock.cli.check_command:check": "Decode your pictures by penstock, and by Pillow, TorchCodec and "
            "OpenCV if they are installed; compare all pixels.",
        },
        "Prepare data": {
            "penstock.cli.pack_commands:pack": "Pack the images and other fields of SRC into DST, with a checksum for "
            "each record.",
            "penstock.cli.convert_commands:convert": "Write SRC as a store of another kind, then read both back and "
            "compare every record.",
            "penstock.cli.view_commands:split": "Split the records of STORE into parts, and show how often each value "
            "is in each part.",
            "penstock.cli.pack_commands:merge": "Merge packs of the same fields into one, such as those that several "
            "machines packed.",
            "penstock.cli.pack_commands:index": "Create decode indices beside STORE, so that a crop decodes only a "
            "part of its JPEG. Images are not changed.",
            "penstock.cli.convert_commands:copy": "Copy a store as it is, between this machine and object storage, and "
            "compare every byte of the copy.",
        },
        "Make a training faster": {
            "penstock.doctor.commands:doctor": "Run TRAIN.py for some steps with its loader watched, and say what is "
            "slow, what to change, and what it brings.",
            "penstock.doctor.commands:tune": "Find the fewest workers that feed TRAIN.py as well as any number, and "
            "print the line of code.",
            "penstock.cli.plan_command:plan": "Compute what each rank of a job gets: steps, repeats, memory, states, "
            "and requests to object storage.",
        },
        "Understand an error": {
            "penstock.cli.explain_command:explain": "Explain an error, a finding of the doctor or what limits a "
            "training: what it means, and how to mend it.",
            "penstock.doctor.commands:env": "Print versions, processor, memory and limits as one block, to paste into "
            "a report of a fault.",
        },
        "Stores in object storage": {
            "penstock.cli.cache_commands:cache": "Show, delete and fetch the copies of remote stores on this machine.",
        },
    }
)
