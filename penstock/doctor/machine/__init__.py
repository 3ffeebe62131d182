"""What a machine gives a script, and what its processes use.

Where to find what:

- the machine: ``machine.py``; kernel files: ``penstock/system/system_files.py``; limits of the control group:
  ``penstock/system/control_group.py``
- processes: ``usage.py``, ``process_counters.py``; disks: ``disks.py``
- how long a device works on each step: ``step_events.py``
- what ``penstock env`` prints: ``environment.py``
"""
