"""How long the property tests look: briefly by default, and never against the clock of a busy machine."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("default-run", deadline=None, max_examples=60)
settings.register_profile("long", deadline=None, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default-run"))
