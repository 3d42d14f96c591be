"""The effort of the property tests: few examples by default, and no deadline, because the machine may be busy."""

from __future__ import annotations

import os

from hypothesis import settings

# The gate is to find the same each time; what is searched at random is the laboratory's.
settings.register_profile("default-run", deadline=None, max_examples=60, derandomize="ODRADEK_GATE" in os.environ)
settings.register_profile("long", deadline=None, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default-run"))
