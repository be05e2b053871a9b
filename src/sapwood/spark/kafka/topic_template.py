"""Names of topics, made of the columns of a delivery: `deliveries-{subscriber}`.

A value becomes part of a name so that different values have different topics:

    letters of ASCII, digits, `.`, `-` and `_`   stay as they are
    any other character                          `_` and two hexadecimal digits for each of its bytes in UTF-8
    `_` before two hexadecimal digits            `_5F`, since it would look like such a character
    no value                                     nothing

A name of more than 249 characters, the limit of Kafka, ends in a digest of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sapwood.spark.dataframe_match import column

_LONGEST = 249
_DIGEST = 32
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_LEGAL = "A-Za-z0-9._-"


class TopicTemplate:
    """The name of a topic, with names of columns in braces."""

    def __init__(self, template: str, columns: Sequence[str]) -> None:
        """Raise ValueError for a template that has other columns, or gives a name that Kafka refuses."""
        self.columns = _PLACEHOLDER.findall(template)
        self._literals = _PLACEHOLDER.split(template)[::2]
        known = ", ".join(f"{{{name}}}" for name in columns)
        for name in self.columns:
            if name not in columns:
                raise ValueError(f"'topic': there is no {{{name}}}; known are {known}")
        literal = "".join(self._literals)
        illegal = re.search(f"[^{_LEGAL}]", literal)
        if illegal:
            raise ValueError(
                f"'topic': {illegal[0]!r} cannot be in the name of a topic, but letters, digits, "
                "'.', '-' and '_'"
            )
        if not re.search(r"[^.]", literal):
            without = "a value can be missing, so its topic needs a name of its own: " if self.columns else ""
            raise ValueError(
                f'\'topic\': {without}a name such as "deliveries" or "deliveries-{{subscriber}}"'
            )
        if len(literal) > _LONGEST - _DIGEST - 1:
            raise ValueError(f"'topic': the name has more than {_LONGEST - _DIGEST - 1} characters")

    def select(self, rows: DataFrame) -> Column:
        """Return the column with the topic of each row; a column that rows lack is a missing value."""
        parts = [F.lit(self._literals[0])]
        for name, literal in zip(self.columns, self._literals[1:], strict=True):
            parts.append(_escape(column(name)) if name in rows.columns else F.lit(""))
            parts.append(F.lit(literal))
        if len(parts) == 1:
            return parts[0]
        full = F.concat(*parts)
        digest = F.substring(F.sha2(full, 256), 1, _DIGEST)
        cut = F.concat(F.substring(full, 1, _LONGEST - _DIGEST - 1), F.lit("-"), digest)
        return F.when(F.length(full) > _LONGEST, cut).otherwise(full)


def _escape(value: Column) -> Column:
    """Escape what cannot be in the name of a topic."""
    marked = F.regexp_replace(value, "_(?=[0-9A-F]{2})", "_5F")
    escaped = F.array_join(F.transform(F.split(marked, ""), _escape_character), "")
    plain = marked.rlike(f"^[{_LEGAL}]*$")
    return F.when(value.isNull(), "").when(plain, marked).otherwise(escaped)


def _escape_character(character: Column) -> Column:
    digits = F.regexp_replace(F.hex(F.encode(character, "UTF-8")), "(..)", "_$1")
    return F.when(character.rlike(f"^[{_LEGAL}]$"), character).otherwise(digits)
