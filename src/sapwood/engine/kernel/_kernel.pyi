"""The extension module that `hatch_build.py` compiles from `native/*.c`."""

SOURCE_CHECKSUM: int
