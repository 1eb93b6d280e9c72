"""python -m benchmarks.run: measure all figures, print them and write benchmarks/results.json."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import (
    evaluation,
    exported,
    feeding,
    imports,
    merged,
    methods,
    plain_pytorch,
    service_figures,
    stacked,
    training,
)
from benchmarks.figures import Figure, Outcome, write_results
from unseen.results.folder import processor_name

FIGURES: list[Figure] = [
    *training.FIGURES,
    *methods.FIGURES,
    *evaluation.FIGURES,
    *exported.FIGURES,
    *merged.FIGURES,
    *service_figures.FIGURES,
    *plain_pytorch.FIGURES,
    *feeding.FIGURES,
    *stacked.FIGURES,
    *imports.FIGURES,
]
RESULTS = Path(__file__).with_name("results.json")


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parser().parse_args(arguments)
    figures = [figure for figure in FIGURES if chosen.only.lower() in figure.name.lower()]
    if not figures:
        names = "".join(f"\n  {figure.name}" for figure in FIGURES)
        sys.exit(f"no figure has '{chosen.only}' in its name; there are:{names}")
    console = Console()
    outcomes = []
    for number, figure in enumerate(figures, start=1):
        with console.status(f"measuring {number} of {len(figures)}: {figure.name}"):
            measured = figure.measure(chosen.repeats or figure.repeats)
        outcomes.append(Outcome(figure, measured))
        write_results(chosen.output, outcomes, [figure.name for figure in FIGURES], processor())
    console.print(table(outcomes))


def processor() -> str:
    """Kind, vector instructions and cores: what the ratios depend on."""
    import torch

    vectors = torch.backends.cpu.get_cpu_capability()
    return f"{processor_name()}, {vectors}, {torch.get_num_threads()} threads"


def table(outcomes: Sequence[Outcome]) -> Table:
    """One row a figure; under its name what was divided by what, and what else was seen."""
    shown = Table(title=f"Speed, as ratios measured in one run on {processor()}", show_lines=True)
    for heading in ("figure", "measured", "goal", "holds"):
        shown.add_column(heading, overflow="fold")
    for outcome in outcomes:
        figure, measured = outcome.figure, outcome.measurement
        about = f"{figure.sides}; {measured.remark}" if measured.remark else figure.sides
        ratio = f"{measured.ratio:.3f}"
        if measured.middle_half:
            low, high = measured.middle_half
            ratio += f"\n[dim]{low:.3f} to {high:.3f}[/dim]"
        holds = "[green]yes[/green]" if outcome.holds else "[red]no[/red]"
        name = f"{escape(figure.name)}\n[dim]{escape(about)}[/dim]"
        shown.add_row(name, ratio, figure.goal, holds)
    return shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--only", default="", metavar="NAME", help="figures with this in the name")
    parser.add_argument("--repeats", type=_positive, metavar="N", help="pairs for every figure")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"should be at least 1, got {number}")
    return number


if __name__ == "__main__":
    main()
