"""Lists of images in text files."""

import csv
import io
from collections.abc import Collection, Iterator
from pathlib import Path

from unseen.errors import DataError


def read_text(file: Path, expected: str) -> str:
    """Return what a text file holds. Raises DataError where it is missing or no UTF-8."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{file} cannot be read as UTF-8 text ({error}); expected {expected}"
        ) from error


def csv_rows(
    file: Path, columns: Collection[str], expected: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line number and the fields of each row of a CSV file that has these columns."""
    reader = csv.DictReader(io.StringIO(read_text(file, expected), ""), skipinitialspace=True)
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        absent = [name for name in columns if name not in reader.fieldnames]
        if absent:
            header = ",".join(reader.fieldnames)
            problem = f"has no column {', '.join(absent)} in its header '{header}'"
            raise DataError(f"{file} {problem}; expected {expected}")
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise DataError(f"{file} is no CSV file ({error}); expected {expected}") from error
