from typing_extensions import Buffer

def check_records(
    data: Buffer,
    position: int,
    end: int,
    records_count: int,
    base_timestamp: int,
    append_timestamp: int | None,
    stamp: bool,
    lowest: int,
    highest: int,
    key_required: bool,
) -> tuple[int, bool, bool, int, list[tuple[int, int, int]]] | tuple[int, int, str]: ...
