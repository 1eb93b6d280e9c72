"""Arrays that a run left behind: arrays.npz (the method's own) and pictures.npz."""

import zipfile
from pathlib import Path

import numpy as np

from unseen.reports.page.runs import Run


def method_arrays(run: Run) -> dict[str, np.ndarray]:
    return _read(run.folder.arrays)


def pictures(run: Run) -> dict[str, np.ndarray]:
    return _read(run.folder.pictures)


def _read(path: Path) -> dict[str, np.ndarray]:
    """Empty where there is no file, or a damaged one: pictures are no reason to lose a report."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile):
        return {}
