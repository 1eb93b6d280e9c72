"""Every method, stopped in the middle of each phase, ends with the bytes of an undisturbed run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unseen.results.folder import RunFolder
from unseen.settings import catalog
from unseen.settings.experiment import Experiment
from unseen.training import loop
from unseen.training.interruptions import Interrupted
from unseen.training.loop import save
from unseen.training.session import Session

ADAPTING = [
    name
    for name in catalog.METHODS
    if catalog.load("method", name).traits.target_images == "optional"
]
FORMS = [
    *((name, {}) for name in catalog.METHODS),
    *((name, {"setting": "adaptation"}) for name in ADAPTING),
    *(
        (name, {"setting": "adaptation", "data__unseen_domain": "plain,outlines"})
        for name in (*ADAPTING, "reweighting")
    ),
    ("dmg", {"method__prediction": "routed"}),
    ("dmg", {"data__train_on_unseen": True}),
]


@pytest.mark.parametrize(("method", "changes"), FORMS)
def test_resume_equality(
    method: str,
    changes: dict[str, Any],
    tiny: Callable[..., Experiment],
    run_tiny: Callable[[Experiment, Path], RunFolder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = tiny(f"digits/{method}", **changes)
    whole = run_tiny(experiment, tmp_path / "whole")

    def save_and_stop(session: Session) -> None:
        save(session)
        raise Interrupted(session.runs[0].folder.path, session.step, 15)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "save", save_and_stop)
        for _ in range(2):  # stops at step 2 and step 4 of 6
            with pytest.raises(Interrupted):
                run_tiny(experiment, tmp_path / "stopped")
    stopped = run_tiny(experiment, tmp_path / "stopped")
    files = {p.relative_to(whole.path) for p in whole.path.rglob("*") if p.is_file()}
    assert files == {p.relative_to(stopped.path) for p in stopped.path.rglob("*") if p.is_file()}
    for file in files - {Path("timing.json"), Path("environment.json"), Path("lock")}:
        assert (whole.path / file).read_bytes() == (stopped.path / file).read_bytes(), file
