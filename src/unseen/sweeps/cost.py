"""A plan before it is trained: its runs, where they stand, and what they cost, from a step and a
prediction that are timed on noise."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import torch
from rich.markup import escape
from rich.table import Table

from unseen.data.augment import PixelScale, augment
from unseen.data.batch import DomainBatch, Task
from unseen.data.index import Index
from unseen.data.randomness import image_keys, step_key
from unseen.methods.base import DatasetPassMethod, Progress, TrainingImages
from unseen.networks.backbones import build_network
from unseen.settings.experiment import Experiment
from unseen.sweeps.draws import PlannedRun
from unseen.sweeps.plan import Plan
from unseen.sweeps.rules import state_of
from unseen.training.build import build_method, check_target_use, trains_from_features
from unseen.training.optimizers import build_optimizer

NOISE = 2
"""Images of each domain."""


class ImageTimes(NamedTuple):
    """Seconds for one image."""

    training: float
    evaluation: float
    storing: float = 0.0
    """To compute what is stored of it (see `time_storing`)."""


def time_storing(experiment: Experiment, n_classes: int, threads: int, gpu: bool) -> float:
    """Returns the seconds in which an augmented copy of one image is computed and passes the frozen
    stages, timed on noise with random weights."""
    device, number = _device(gpu), 16
    plain = experiment.network.model_copy(update={"pretrained": False})
    network = build_network(plain, n_classes).eval().to(device)
    shape = (number, 3, network.image_size, network.image_size)
    pixels = torch.randint(0, 255, shape, dtype=torch.uint8, device=device)
    keys = image_keys(0, 0, torch.arange(number)).to(device)
    scale = PixelScale(network.mean, network.std)

    @torch.no_grad()
    def store() -> None:
        network.start(augment(pixels, keys, experiment.augment, scale)).sum().item()

    return _quickest(store, device, threads) / number


def time_method(
    experiment: Experiment,
    n_domains: int,
    n_classes: int,
    threads: int,
    gpu: bool,
    noise: int = NOISE,
) -> ImageTimes:
    """Time a step and a prediction on noise, with random weights: neither files nor pretrained
    weights are needed. Of a method in two phases it is the second one. `noise` is how many images
    there are of each domain: few take longer each."""
    device = _device(gpu)
    adapts = experiment.setting == "adaptation"
    classes, names = (tuple(map(str, range(number))) for number in (n_classes, n_domains))
    task = Task(classes, names, "target" if adapts else None)
    plain = experiment.network.model_copy(update={"pretrained": False})
    experiment = experiment.model_copy(update={"network": plain})
    method = build_method(experiment, task).to(device).train()
    n, size = noise * n_domains, method.network.image_size
    images = torch.randn(n, 3, size, size, device=device)
    if trains_from_features(experiment):
        with torch.no_grad():
            images = method.network.start(images)
    domains = torch.arange(n_domains, device=device).repeat_interleave(noise)
    batch = DomainBatch(
        images,
        torch.arange(n, device=device) % n_classes,
        domains,
        image_keys(0, 0, torch.arange(n)).to(device),
        n_domains,
        torch.arange(n, device=device),
        step_key(0, 0).to(device),
        images if check_target_use(experiment) else None,
    )
    if isinstance(method, DatasetPassMethod):
        seen = TrainingImages(lambda: iter([batch]), lambda: iter([images]))
        method.use_dataset_pass(method.dataset_pass(seen))
    optimizer = build_optimizer(method, experiment.optimizer)

    def step() -> None:
        losses = method.loss(batch, Progress(99, 100))
        losses["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        losses["loss"].item()

    @torch.no_grad()
    def predict() -> None:
        method.predict(images).sum().item()

    training = _quickest(step, device, threads)
    method.eval()
    return ImageTimes(training / n, _quickest(predict, device, threads) / n)


def _quickest(work: Callable[[], object], device: torch.device, threads: int) -> float:
    """Returns the seconds of the quickest of three times after a warm-up. On processors, what else
    they do does not count."""
    on_cpu, before = device.type == "cpu", torch.get_num_threads()
    clock = time.process_time if on_cpu else time.monotonic
    torch.set_num_threads(threads)
    try:
        work()
        times = [clock()]
        for _ in range(3):
            work()
            times.append(clock())
    finally:
        torch.set_num_threads(before)
    return min(after - start for start, after in pairwise(times)) / (threads if on_cpu else 1)


def _device(gpu: bool) -> torch.device:
    return torch.device("cuda" if gpu and torch.cuda.is_available() else "cpu")


_MOST_RUNS_SHOWN = 40

Measure = Callable[[Experiment, int, int], ImageTimes]
"""Times a step with these settings and numbers of domains and classes."""


class Row(NamedTuple):
    """All runs of a method on a dataset and a backbone."""

    kind: tuple[str, str, str]
    planned: int
    states: Mapping[str, int]
    seconds_per_run: float
    seconds_left: float
    basis: str
    """What the seconds are derived from."""


def estimate(plan: Plan, measure: Measure) -> list[Row]:
    """Return one row for each method on a dataset and backbone. Where runs are finished their time
    is used; otherwise one step of the method is timed, once on each backbone. Every run is counted
    to its end, also those that halving may stop."""
    times: dict[tuple[str, str, int | None], ImageTimes] = {}
    by_kind: dict[tuple[str, str, str], list[PlannedRun]] = {}
    for run in plan.distinct:
        by_kind.setdefault(run.condition[:3], []).append(run)
    rows: list[Row] = []
    for kind, runs in by_kind.items():
        states = Counter(state_of(run.folder) for run in runs)
        known = [run.folder.read_seconds() for run in runs if run.folder.finished]
        basis = f"{len(known)} finished run{'s' * (len(known) > 1)}" if known else "a timed step"
        if not known:
            experiment = runs[0].part.experiment
            index, network = plan.datasets.open(experiment.data).index(), experiment.network
            key = (experiment.method.model_dump_json(), network.name, network.image_size)
            if key not in times:
                domains = max(2, len(index.labelled_domains) - 1)
                times[key] = measure(experiment, domains, len(index.classes))
            known = [run_seconds(run, index, times[key]) for run in runs]
        seconds, left = fmean(known), len(runs) - states["finished"] - states["stopped"]
        rows.append(Row(kind, len(runs), states, seconds, left * seconds, basis))
    return rows


def run_seconds(run: PlannedRun, index: Index, times: ImageTimes) -> float:
    """Return the seconds of a run: its steps, evaluations on the validation images, and the
    measurement at the end."""
    experiment, domains = run.part.experiment, len(index.labelled_domains)
    training, of_domain = max(1, domains - 1), len(index) / domains
    batch = int(run.changes.get("images_per_domain", experiment.images_per_domain))
    validated = of_domain * training * experiment.data.validation_share
    answers = math.ceil(run.steps / experiment.evaluate_every) * validated
    answers += 2 * (of_domain + validated)
    return run.steps * batch * training * times.training + answers * times.evaluation


def on_workers(rows: Sequence[Row], workers: int) -> float:
    """Return seconds by the clock: the work shared out, but no run is done by two."""
    longest = max((row.seconds_per_run for row in rows if row.seconds_left), default=0.0)
    return max(longest, sum(row.seconds_left for row in rows) / workers)


def runs_table(plan: Plan) -> Table | None:
    """Return every run with its searched settings and where it stands; None where they are too
    many."""
    if len(plan.distinct) > _MOST_RUNS_SHOWN:
        return None
    table = Table(title="Runs", title_justify="left")
    for column in ("method", "unseen", "seed", "draw", "settings", "state"):
        table.add_column(column)
    for run in plan.distinct:
        dataset, method, backbone, unseen, seed = run.condition
        name = f"{method} ({dataset}, {backbone})" if plan.has_several_kinds else method
        values = ", ".join(f"{path}={value}" for path, value in run.values.items())
        cells = [name, "+".join(unseen), str(seed), str(run.draw), values]
        table.add_row(*map(escape, cells), state_of(run.folder))
    return table


def cost_table(rows: Sequence[Row]) -> Table:
    """Return runs by kind, and the time that is left; columns without a number are left out."""
    table = Table(title="Cost", title_justify="left")
    table.add_column("runs of", overflow="fold")
    states = ("finished", "to resume", "stopped", "failed")
    shown = [state for state in states if any(row.states.get(state) for row in rows)]
    for column in ("planned", *shown, "a run", "left"):
        table.add_column(column, justify="right")
    table.add_column("by", overflow="fold")
    for row in rows:
        dataset, method, backbone = map(escape, row.kind)
        numbers = [row.planned, *(row.states.get(state, 0) for state in shown)]
        times = (clock(row.seconds_per_run), clock(row.seconds_left))
        kind = f"{method} ({dataset}, {backbone})"
        table.add_row(kind, *map(str, numbers), *times, row.basis)
    return table


def cost_summary(rows: Sequence[Row], workers: int) -> str:
    """Say how long all runs take on so many workers and on more."""
    planned = sum(row.planned for row in rows)
    finished = sum(row.states.get("finished", 0) for row in rows)
    work = clock(sum(row.seconds_left for row in rows))
    counts = sorted({1, workers, 2 * workers, 8 * workers})
    times = ", ".join(f"{clock(on_workers(rows, k))} on {k}" for k in counts)
    return (
        f"{planned:,} runs, {finished:,} finished; {work} of work is left: {times} workers like "
        "this one."
    )


def clock(seconds: float) -> str:
    """Write `40 s`, `12 min`, `3.5 h`, `12.0 days` or `3 years`."""
    for below, unit, name in ((100, 1, "s"), (6000, 60, "min")):
        if seconds < below:
            return f"{seconds / unit:.0f} {name}"
    if seconds < 100 * 3600:
        return f"{seconds / 3600:.1f} h"
    days = seconds / 86400
    return f"{days:.1f} days" if days < 1000 else f"{days / 365:,.0f} years"
