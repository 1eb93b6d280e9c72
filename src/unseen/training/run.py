"""A run of a session: its settings and images, its folder, and what was recorded of it."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lightning_fabric import Fabric

from unseen.atomic import read_json, write_json
from unseen.data.batch import Task
from unseen.data.sampling import Sampler
from unseen.errors import DataError, UnseenError
from unseen.results.folder import MetricsLog, RunFolder
from unseen.results.rules import WITHOUT_LABELS, Evaluation
from unseen.settings.experiment import Experiment
from unseen.training.build import Images, build_sampler


@dataclass
class Run:
    """One of the runs of a session."""

    experiment: Experiment
    folder: RunFolder
    images: Images
    task: Task
    log: MetricsLog | None = None
    """Of a run that trains alone, and on rank 0 only, which alone writes files."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """What a run that trains together with others writes when all of them are done."""
    evaluations: list[Evaluation] = field(default_factory=list)
    error: UnseenError | None = None
    """Why it stopped, while the others go on."""

    @cached_property
    def sampler(self) -> Sampler:
        """Which images are in which batch."""
        return build_sampler(self.experiment, self.images.roles)

    def record(self, record: dict[str, Any]) -> None:
        """Adds a line to metrics.jsonl."""
        if self.log is not None:
            self.log.write(record)
        else:
            self.records.append(record)

    def write_records(self) -> None:
        """Writes what was held back while the run trained together with others."""
        log = MetricsLog(self.folder.metrics, 0)
        for record in self.records:
            log.write(record)
        log.sync()
        log.close()


def rules_of(experiment: Experiment) -> tuple[str, ...]:
    """Returns the selection rules whose weights a run keeps."""
    oracle = ("oracle",) if experiment.selection == "oracle" else ()
    without_labels = tuple(WITHOUT_LABELS) if experiment.setting == "adaptation" else ()
    return (*oracle, *without_labels, "source", "last")


def remember_images(fabric: Fabric, folder: RunFolder, images: Images) -> None:
    """Records which images a run was started with; it can only go on with the same ones."""
    if not folder.data.is_file():
        if fabric.is_global_zero:
            write_json(folder.data, describe_images(images))
        return
    if read_json(folder.data)["content"] != images.prepared.content:
        raise DataError(
            f"the images have changed since the run in {folder.path} was started; "
            "put them back, or train in another folder (--runs DIR)"
        )


def describe_images(images: Images) -> dict[str, Any]:
    """Returns what a run was given: content, classes, and how many images of each domain for
    what."""
    prepared, roles = images.prepared, images.roles
    counts = {
        role: {domain: len(rows) for domain, rows in getattr(roles, role).items()}
        for role in ("train", "validation", "in_domain", "out_of_domain")
    }
    return {
        "content": prepared.content,
        "image_size": prepared.size,
        "classes": list(prepared.index.classes),
        "training_domains": list(roles.training_domains),
        "unseen_domains": list(roles.unseen_domains),
        "left_out": list(prepared.left_out),
        **counts,
        "target": len(roles.target_rows),
        "target_by_domain": {domain: len(rows) for domain, rows in roles.target.items()},
    }
