from typing import Any, Literal

def read_events(
    data: bytes,
    reader: Literal["tokenizer", "expat"],
    encoding: str | None = None,
    depth: int = 500,
    attributes: int = 1_000,
    name_length: int = 1_000,
) -> list[tuple[Any, ...]] | int: ...
def count_events(
    data: bytes,
    reader: Literal["tokenizer", "expat"],
    encoding: str | None = None,
    depth: int = 500,
    attributes: int = 1_000,
    name_length: int = 1_000,
    times: int = 1,
    version: int = -1,
) -> tuple[int, int, int, int, int, int, int] | int: ...
