"""Logins by OAUTHBEARER: their messages, and the tokens and keys that they are checked by."""
