"""A loader is iterated, or the script is run again, in child processes, as it is or with a change.

Where to find what:

- one trial, and several in turns: ``trials.py``, ``turns.py``
- a changed loader: ``changed_loader.py``; one whose stage is given back from memory: ``ablation.py``,
  ``kept_calls.py``
- the child process: ``trial_child.py``; how it is run and ended: ``forked_child.py``
- the script itself again: ``script_runs.py``
"""
