"""Workers that are actors of Ray: on this machine or on others, batches come by Ray's object store or shared memory.

Read in this order: ``options`` (what a user asks for), ``backend`` (what the loader calls), ``transport`` and
``running_actor`` (the parent's side of an actor, and how a batch comes), ``actor`` (what runs in it). All else is
shared with worker processes: :mod:`penstock.workers.processes`.
"""
