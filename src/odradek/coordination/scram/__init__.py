"""SCRAM (RFC 5802, RFC 7677): a client proves that it knows a password, and the server that it knows the user."""
