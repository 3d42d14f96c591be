"""What cannot be copied: a copy would hold the same files and the same lock, and give them up when it is freed."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Uncopied:
    """Refuses `copy.copy`, `copy.deepcopy` and `pickle`, for the classes that hold open files."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        """Refuse.

        Raises:
            TypeError: Always.
        """
        raise TypeError(f"a {type(self).__name__} has open files, so it cannot be copied or pickled: open another one")
