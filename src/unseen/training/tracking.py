"""A run in progress, as trackers see it: the same records that are written to its folder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from unseen.reports.tracking import Subject, Trackers
from unseen.settings.experiment import complete_settings, identity
from unseen.training.state import RunState


@contextmanager
def tracked(state: RunState, names: Sequence[str]) -> Iterator[None]:
    """Send what this process records to trackers, from the beginning; then the result."""
    if state.log is None or not names:
        yield
        return
    folder, experiment = state.folder, state.experiment
    subject = Subject(
        folder.path.name, identity(experiment), complete_settings(experiment), folder.path.parent
    )
    trackers = Trackers(names, subject, state.display.line)
    finished = False
    try:
        for record in folder.read_metrics():
            trackers.record(record)
        state.log.listener = trackers.record
        yield
        if folder.finished:  # not where it pauses
            trackers.result(folder.read_result())
            finished = True
    finally:
        trackers.close(finished)
