"""How much the slow tests try: `make test-slow` all that they have, CI a fixed part of it."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["IS_PART"]

IS_PART: Final = os.environ.get("HYPOTHESIS_PROFILE", "explore") == "many"
