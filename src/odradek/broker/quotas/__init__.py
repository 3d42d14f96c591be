"""The quotas of clients, as the broker enforces them."""
