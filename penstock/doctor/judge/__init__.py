"""From a recording to a verdict and advice.

Where to find what:

- the rules of the verdict: ``verdict.py``; what limits: ``situation.py``, ``observed_pipeline.py``
- what is advised: ``advice/``, one function a candidate; the model that predicts gains: ``queueing.py``
- how workers and prefetch are chosen: ``tuning.py``
"""
