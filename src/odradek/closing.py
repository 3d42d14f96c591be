"""What is closed at the end of a `with` block."""

from __future__ import annotations

from typing import Self


class Closing:
    """A context manager that closes itself."""

    __slots__ = ()

    def close(self) -> None:
        """Close what is open."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
