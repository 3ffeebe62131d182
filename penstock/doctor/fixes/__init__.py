"""``penstock doctor --fix``: changes of the user's own file, measured by running the script itself.

Where to find what:

- how a file is edited: ``edits.py``; which edits are tried: ``candidates.py``
- how runs are compared, and what is said of them: ``patch.py``
- how the script is run: ``penstock/doctor/trials/script_runs.py``
"""
