"""What a machine gives a script, and what its processes and its device use.

Where to find what:

- the machine: ``machine.py``; kernel files: ``penstock/system/system_files.py``; limits of the control group:
  ``penstock/system/control_group.py``
- processes: ``usage.py``, ``process_counters.py``; counters of the whole machine: ``system_counters.py``; disks:
  ``disks.py``
- devices: ``device_watch.py``, ``step_events.py``
- what ``penstock env`` prints: ``environment.py``
"""
