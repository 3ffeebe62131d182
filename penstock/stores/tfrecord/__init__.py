"""TFRecord files of ``tf.train.Example``.

Where to find what:

- records: ``frames.py``; ``tf.train.Example``: ``example.py``
- natively: ``native/core/src/tf_example.rs``, ``native/core/src/crc32c.rs``
"""
