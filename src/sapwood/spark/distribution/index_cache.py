"""The packed index beside the checkpoint, so that a restart loads it instead of compiling all queries.

    index/packed    the index of the last version that was packed, with what is known about that version

It is used if it was made with the same settings from the same store, which still has the changes since then;
else everything is compiled. So the file may be removed at any time.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from sapwood.broker import Broker
from sapwood.errors import SapwoodError
from sapwood.spark.distribution.index_snapshot import unpack_index
from sapwood.spark.io.file_system import make_folder, move_file, open_file, open_output

_log = logging.getLogger(__name__)
_FORMAT = 1
_NAME = "packed"


class CachedIndex(NamedTuple):
    """The compiled subscriptions of a version."""

    version: int
    mark: str
    """a digest of the version, which differs between stores"""
    broker: Broker
    subscribers: dict[str, str]
    notes: dict[str, Any]
    """what else the owner needs to go on from this version"""


@dataclass(frozen=True, slots=True)
class IndexCache:
    """A folder with the last packed index of a pipeline."""

    folder: str
    settings: str
    """a text that changes with all settings that the compiled index depends on"""

    def save(self, version: int, mark: str, packed: bytes, notes: Mapping[str, Any]) -> None:
        """Write the packed index of a version in place of the one before; log it if that is impossible."""
        record = (_FORMAT, self.settings, version, mark, packed, dict(notes))
        unfinished = f"{self.folder}/_{_NAME}"
        try:
            make_folder(self.folder)
            with open_output(unfinished) as file:
                pickle.dump(record, file, pickle.HIGHEST_PROTOCOL)
            move_file(unfinished, f"{self.folder}/{_NAME}")
        except (OSError, pa.ArrowException) as error:
            _log.warning("the index cannot be saved in %s, so a restart compiles it: %s", self.folder, error)

    def load(self) -> CachedIndex | None:
        """Return the index that was saved; None if there is none that can be used with these settings."""
        try:
            with open_file(f"{self.folder}/{_NAME}") as file:
                form, settings, version, mark, packed, notes = pickle.load(file)
            if (form, settings) != (_FORMAT, self.settings):
                _log.info("the index in %s was made with other settings", self.folder)
                return None
            return CachedIndex(version, mark, *unpack_index(packed), notes)
        except FileNotFoundError:
            return None
        except (
            OSError,
            EOFError,
            ValueError,
            TypeError,
            AttributeError,
            ImportError,
            pickle.UnpicklingError,
            SapwoodError,
        ) as error:  # damaged, or of another version of Sapwood
            _log.warning("the index in %s cannot be loaded: %s", self.folder, error)
            return None
