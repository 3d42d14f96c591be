"""The version of this package, which the package's metadata take from here."""

VERSION = "0.2.0"
