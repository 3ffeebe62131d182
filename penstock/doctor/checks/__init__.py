"""Known mistakes in a loader, its dataset and the script that uses it.

Where to find what:

- traps in a loader: ``rules/``; in a training script: ``script_rules/``; the registry of both: ``checking.py``
- what a rule knows: ``subject.py``, ``script_subject.py``; a page for each rule: ``penstock/explain/pages/``
"""
