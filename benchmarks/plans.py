"""python -m benchmarks.plans [--runs N] [--finished N]: what large plans and reports cost.

Nothing is trained: the records of runs are made. Each step is a process of its own, so that its
processor time and its largest memory can be told apart. The times hold for one core.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from unseen.sweeps.ledger import Ledger
    from unseen.sweeps.plan import Plan
    from unseen.sweeps.workers import Outcome

CONDITIONS = 4 * 5
"""Domains and seeds."""
STEPS = {"list": 30, "dry run": 30, "ledger, new": 30, "ledger": 30, "tables": 30, "report": 60}
"""Seconds that each may take. The new ledger is that of a plan of which nothing is trained."""
MEGABYTES = 1024
QUIET = Console(quiet=True)


def made_plan(number: int, runs: Path) -> "Plan":
    """A sweep on the digits: four domains, five seeds, and as many draws as it takes."""
    from unseen.sweeps.plan import plan_sweep
    from unseen.sweeps.sweep_file import load_sweep

    changes = {"methods": "aggregate", "seeds": "0-4", "draws": max(1, number // CONDITIONS)}
    return plan_sweep(load_sweep("digits", changes), "digits", runs)


def write_records(plan: "Plan") -> None:
    """Finished runs: those of a condition share their files, which are linked."""
    from tests.made_results import made_result

    templates: dict[object, Path] = {}
    for run in plan.distinct:
        first = templates.setdefault(run.condition, run.path)
        folder = run.folder
        if first != run.path:
            run.path.mkdir(parents=True)
            for file in first.iterdir():
                os.link(file, run.path / file.name)
            continue
        (domain,) = run.condition.unseen
        others = [name for name in ("plain", "blended", "coloured", "outlines") if name != domain]
        folder.create(run.experiment)
        validation = {"validation": dict.fromkeys(others, 0.9)}
        lines = [{"step": step, "loss": 1.0} for step in range(10, 301, 10)]
        lines += [{"step": step} | validation for step in (100, 200, 300)]
        folder.metrics.write_text("".join(f"{line}\n".replace("'", '"') for line in lines))
        folder.timing.write_text('{"seconds": 12.0}')
        outside, inside = {domain: 0.5}, dict.fromkeys(others, 0.9)
        seed, network = run.condition.seed, run.condition.backbone
        about = {"dataset": "digits", "backbone": network, "steps": 300}
        folder.finish(made_result("aggregate", outside, inside, seed, **about))


def work(step: str, number: int, runs: Path) -> Callable[[], object]:
    """What is measured; what it needs has been imported."""
    from unseen.sweeps import cost
    from unseen.sweeps.cost import ImageTimes
    from unseen.sweeps.ledger import Ledger
    from unseen.sweeps.tables import apply_rules
    from unseen.sweeps.train import PlanDisplay, train_plan

    if step == "report":
        from unseen.reports.page.write import write_report

        return lambda: write_report(runs, runs / "report")
    if step == "tables":
        return lambda: apply_rules(made_plan(number, runs)).write()
    if step == "dry run":
        times = ImageTimes(1e-4, 1e-4)
        return lambda: cost.estimate(made_plan(number, runs), lambda *_: times)

    def ledger() -> None:
        plan = made_plan(number, runs)
        PlanDisplay(QUIET, plan)
        train_plan(plan, lambda jobs: _left(Ledger(jobs, 1, lambda *_: None)), together=False)

    return ledger if step.startswith("ledger") else lambda: made_plan(number, runs).distinct


def _left(ledger: "Ledger") -> dict[Path, "Outcome"]:
    """No outcomes: what is left is not trained."""
    return ledger.outcomes() if not ledger.jobs_left else {}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plans", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="planned runs")
    parser.add_argument("--finished", type=int, default=2_000, help="runs of the report")
    parser.add_argument("--only", choices=list(STEPS))
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step:
        step, number, runs = chosen.step
        run = work(step, int(number), Path(runs))
        started = time.process_time()
        run()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{time.process_time() - started:.1f} {most}")
        return
    with tempfile.TemporaryDirectory() as home:
        for step in [chosen.only] if chosen.only else STEPS:
            number = chosen.finished if step == "report" else chosen.runs
            runs = Path(home) / ("report" if step == "report" else "runs")
            if step in ("ledger", "tables", "report") and not runs.is_dir():
                write_records(made_plan(number, runs))
            words = [sys.executable, "-m", "benchmarks.plans", "--step", step, str(number), runs]
            said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            seconds, most = said.split()
            within = float(seconds) <= STEPS[step] and int(most) <= MEGABYTES
            verdict = "" if within else " (too much)"
            print(f"{step}, {number:,} runs: {seconds} s, {most} MB{verdict}")


if __name__ == "__main__":
    main()
