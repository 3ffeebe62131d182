"""Packs: the LMDB files that penstock writes."""
