from collections.abc import Sequence

class Selection:
    def __init__(
        self,
        start_offset: int,
        end_offset: int,
        start_timestamp: int,
        end_timestamp: int,
        aborted: Sequence[tuple[int, int, int]],
        include_control: bool,
    ) -> None: ...
