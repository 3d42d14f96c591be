"""columnar."""
