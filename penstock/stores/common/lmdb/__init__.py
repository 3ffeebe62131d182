"""LMDB environments, whatever is in them: their pages, and what their writers share. Packs are such, too."""
