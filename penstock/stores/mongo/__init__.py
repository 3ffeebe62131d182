"""Collections of documents and GridFS buckets on a MongoDB server.

Where to find what:

- connections and retries: ``connection.py``; how a collection is opened: ``opening.py``
- which field of a document is the image, the label, the key: ``fields.py``
"""
