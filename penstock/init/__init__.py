"""Training scripts for what lies in a folder: ``penstock init``.

::

    folder ──> recognition.recognise ──> TrainingData ──> script.make_script ──> text, from templates/*.py.txt
               annotations, tables, stores:   what it is, which task,
               the sources of penstock.pack   what else it could be

The scripts use the public names of penstock and torch, and nothing of this package.

Where to find what:

- what is recognised: ``recognition.py``
- which scripts are written: ``script.py``, ``templates/``
"""

from __future__ import annotations

from penstock.init.recognition import TASKS, TrainingData, recognise
from penstock.init.script import make_script

__all__ = ["TASKS", "TrainingData", "make_script", "recognise"]
