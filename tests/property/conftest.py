"""Property tests never fail for being slow on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None, print_blob=True)
settings.load_profile("untimed")
