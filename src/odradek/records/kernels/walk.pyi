from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeAlias

from typing_extensions import Buffer

class Section(Protocol):
    """`LargeSection`, as a walk sees it."""

    inner_base: int
    def check(self) -> None: ...
    def windows(self) -> Iterator[Any]: ...

SectionOpener: TypeAlias = Callable[..., Buffer | Section]

class BatchWalk: ...
