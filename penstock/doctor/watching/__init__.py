"""What is seen while a script runs: its steps, and how its batches are built.

Where to find what:

- what is watched, from the first step to the last: ``watcher.py``; what is kept: ``recording.py``
- iterators of loaders: ``loaders/watched_iterators.py``; their steps: ``loaders/loader_watch.py``
- torch's loader: ``loaders/torch_loader.py``, ``loaders/torch_worker.py``; ours: ``loaders/own_loader.py``, an
  ``Observer`` of ``penstock/trace.py``; loaders made anew for each epoch: ``loaders/made_loaders.py``
- events, and which batches are observed in detail: ``work_recorder.py``, ``event_file.py``; stacks:
  ``stack_sampling.py``, ``stack_stages.py``
- what a step asks torch for: ``steps/torch_calls.py``; of which tensors: ``steps/known_tensors.py``; where batches
  are taken: ``steps/batch_places.py``
- how ranks are compared: ``ranks.py``
"""
