"""How far forecasts are off where the truth is known: docs/results/forecast.csv and the table in
docs/forecast.md, from folders of finished runs.

python docs/generators/forecast_table.py pacs MODELS REFERENCES digits MODELS REFERENCES

MODELS holds runs that leave one domain out: each is forecast on that domain. REFERENCES holds runs
that leave two out. Only those without the forecast domain serve, by their accuracy on the other:
what `unseen forecast --reference` would use. Images of a domain: 500, evenly spaced.
"""

import argparse
import csv
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from rich.console import Console

from unseen.forecast.estimate import NAMES, Combined, Reference, combine
from unseen.reports.formats import MISSING
from unseen.results.folder import RunFolder, find_runs
from unseen.serve.forecast import Known, find_candidates, read_reference

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(<!-- forecast table -->\n).*?(<!-- end of forecast table -->)", re.DOTALL)
FAR = 0.15
"""Where validation accuracy is off by this much, forecasts have to prove themselves."""


class Case(NamedTuple):
    """A model and the domain that it left out."""

    dataset: str
    method: str
    domain: str
    seed: int
    truth: float
    validation: float
    combined: Combined
    references: int

    @property
    def naive_error(self) -> float:
        return abs(self.validation - self.truth)

    @property
    def error(self) -> float:
        return abs(self.combined.accuracy - self.truth)

    @property
    def covered(self) -> bool:
        return self.combined.low <= self.truth <= self.combined.high


@cache
def measured(run: Path, domain: str) -> Reference:
    """What each estimate says of a domain that a run left out, and the truth."""
    [found] = read_reference(RunFolder(run), [domain], "cpu")
    return found


def read_cases(dataset: str, models: Path, references: Path) -> Iterable[Case]:
    for folder in find_runs(models):
        if not folder.finished:
            continue
        result = folder.read_result()
        if len(result.unseen_domains) != 1 or result.merged is not None:
            continue
        [domain] = result.unseen_domains
        known = Known(result.method, result.backbone, result.classes, result.training_domains)
        candidates = list(find_candidates(references, known))
        calibrated = [measured(run.path, each) for run, domains in candidates for each in domains]
        own = measured(folder.path, domain)
        combined = combine(own.source_accuracy, own.gaps, calibrated, 500)
        label = _label(result.method, folder.read_settings())
        yield Case(
            dataset, label, domain, result.seed, own.accuracy, own.source_accuracy, combined,
            len(calibrated),
        )  # fmt: skip


def _label(method: str, settings: dict[str, Any]) -> str:
    averaged = settings.get("averaging", {}).get("name", "none") != "none"
    return f"{method}, averaged" if averaged else method


def to_markdown(cases: Sequence[Case]) -> str:
    header = ("dataset, method", "domain left out", "truth", "validation images", "forecast")
    lines = [_row(*header, "off by", "inside"), "|---|---|---:|---:|---:|---:|---:|"]
    groups: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.dataset, case.method, case.domain), []).append(case)
    for (dataset, method, domain), own in sorted(groups.items()):
        half = fmean((each.combined.high - each.combined.low) / 2 for each in own)
        lines.append(
            _row(
                f"{dataset}, {method}",
                domain,
                _mean(each.truth for each in own),
                _mean(each.validation for each in own),
                f"{_mean(each.combined.accuracy for each in own)} ± {100 * half:.0f}",
                _mean(each.error for each in own),
                f"{sum(each.covered for each in own)} of {len(own)}",
            )
        )
    for dataset in dict.fromkeys(each.dataset for each in cases):
        lines += ["", *_summary(dataset, [each for each in cases if each.dataset == dataset])]
    return "\n".join(lines) + "\n"


def _summary(dataset: str, cases: Sequence[Case]) -> Iterable[str]:
    """Mean absolute errors in points, over all cases and where validation accuracy is far off."""
    far = [each for each in cases if each.naive_error >= FAR]
    parts = (cases, far)
    columns = (f"all {len(cases)}", f"validation off by 15 or more ({len(far)})")
    yield _row(f"{dataset}: mean absolute error, points", *columns)
    yield "|---|---:|---:|"
    naive = (_mean(each.naive_error for each in part) for part in parts)
    yield _row("accuracy on validation images", *naive)
    for name, called in NAMES.items():
        for kind, how in (("plain", "as it is"), ("accuracy", "calibrated")):
            texts = [_mean(_single_errors(part, name, kind)) for part in parts]
            if texts[0] != MISSING:
                yield _row(f"{called}, {how}", *texts)
    found = (f"**{_mean(each.error for each in part)}**" for part in parts)
    yield _row("**combined forecast**", *found)
    inside = (f"{sum(each.covered for each in part)} of {len(part)}" for part in parts)
    yield _row("intervals (80 %) that hold the truth", *inside)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _single_errors(cases: Sequence[Case], name: str, kind: str) -> Iterable[float]:
    for case in cases:
        for each in case.combined.estimates:
            value = getattr(each, kind)
            if each.name == name and value is not None:
                yield abs(value - case.truth)


def _mean(values: Iterable[float]) -> str:
    found = list(values)
    return f"{100 * fmean(found):.1f}" if found else MISSING


def write_csv(cases: Sequence[Case], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        singles = list(NAMES)
        writer.writerow(
            ["dataset", "method", "domain", "seed", "truth", "validation", "forecast", "low",
             "high", "references", *singles]
        )  # fmt: skip
        for case in cases:
            by_name = {each.name: each.accuracy for each in case.combined.estimates}
            numbers = (case.truth, case.validation, *case.combined[:3])
            writer.writerow(
                [case.dataset, case.method, case.domain, case.seed,
                 *(f"{each:.4f}" for each in numbers), case.references,
                 *("" if by_name.get(name) is None else f"{by_name[name]:.4f}" for name in singles)]
            )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", help="DATASET MODELS REFERENCES, as often as needed")
    chosen = parser.parse_args()
    triples = zip(*(iter(chosen.folders),) * 3, strict=True)
    cases = [
        case
        for dataset, models, references in triples
        for case in read_cases(dataset, Path(models), Path(references))
    ]
    write_csv(cases, ROOT / "results" / "forecast.csv")
    table = to_markdown(cases)
    page = ROOT / "forecast.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(_BLOCK.sub(lambda found: found[1] + table + found[2], text), encoding="utf-8")
    Console().print(table, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
