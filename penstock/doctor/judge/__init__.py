"""From a recording to a verdict and advice.

Where to find what:

- the rules of the verdict: ``verdict.py``; what it reads: ``situation.py``, ``observations.py``
- what the absence of a stage brings: ``absences.py``
- what is advised: ``advice/``, one function a candidate
- how workers and prefetch are chosen: ``tuning.py``
"""
