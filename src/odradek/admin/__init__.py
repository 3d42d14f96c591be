"""Topics and groups, looked at and changed: in a log directory, and on a broker, by the same calls."""
