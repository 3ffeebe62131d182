"""Collections of documents and GridFS buckets on a MongoDB server."""
