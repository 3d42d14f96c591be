"""Quotas of clients: whom they are for, which one counts, and how long a client that exceeds its own has to wait."""
