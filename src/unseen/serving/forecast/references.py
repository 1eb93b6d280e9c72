"""Finished runs that show how far estimates are off where a domain was left out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from unseen.errors import UnseenError
from unseen.forecast.combine import Reference
from unseen.forecast.estimates import gaps
from unseen.records.folder import RunFolder
from unseen.records.result import RunResult
from unseen.records.run_list import find_runs
from unseen.serving.forecast.run_images import RunImages

Say = Callable[[str], None]


class Known(NamedTuple):
    """What a model was made of: references may know this and no more."""

    method: str
    backbone: str
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    """Its training domains, whose labels are known."""


class Candidate(NamedTuple):
    """A run, and a domain that it left out."""

    folder: RunFolder
    result: RunResult
    domain: str


def read_references(runs: Path, known: Known, say: Say, device: str = "auto") -> list[Reference]:
    """All references among the runs below a folder. Raises where there is none."""
    candidates = list(find_candidates(runs, known))
    if not candidates:
        raise UnseenError(_about_none(runs, known))
    found: list[Reference] = []
    opened: RunImages | None = None
    for folder, _, domain in candidates:
        if opened is None or opened.folder is not folder:
            say(f"reference {len(found) + 1} of {len(candidates)}: {folder.path.name}")
            opened = RunImages(folder, device)
        left_out = opened.left_out(domain)
        profile = opened.profile
        found.append(
            Reference(
                folder.path.name,
                domain,
                profile.accuracy,
                left_out.accuracy,
                gaps(profile, left_out.observed),
            )
        )
    return found


def find_candidates(runs: Path, known: Known) -> Iterator[Candidate]:
    """Runs of the same kind of model that were trained on some of its training domains, and each of
    these that they left out.

    A run that was trained on anything else, or a domain that the model was not trained on, is none:
    it may know labels of the very images that are asked about.
    """
    for folder, result in _finished(runs):
        alike = (result.method, result.backbone) == (known.method, known.backbone)
        if not alike or result.classes != known.classes or result.merged is not None:
            continue
        if result.setting != "generalization" or not set(result.training_domains) <= set(
            known.domains
        ):
            continue
        measured = result.view(result.selection, "out_of_domain")
        for domain in result.unseen_domains:
            if domain in known.domains and domain in measured:
                yield Candidate(folder, result, domain)


def _finished(runs: Path) -> Iterator[tuple[RunFolder, RunResult]]:
    if not runs.is_dir():
        raise UnseenError(f"there is no folder {runs}; --reference names a folder of runs")
    for folder in find_runs(runs):
        if folder.finished:
            yield folder, folder.read_result()


def _about_none(runs: Path, known: Known) -> str:
    """What was found, and what to train."""
    results = [result for _, result in _finished(runs)]
    kinds = sorted({f"{each.method} on {each.backbone}" for each in results})
    domains = ",".join(known.domains)
    leaking = sum(not set(each.training_domains) <= set(known.domains) for each in results)
    return (
        f"no run in {runs} can serve as a reference: it takes finished runs of {known.method} on "
        f"{known.backbone} that were trained on some of {', '.join(known.domains)} and tested on "
        f"another of these. Found {len(results)} finished runs"
        + (f" ({', '.join(kinds[:4])})" if kinds else "")
        + (f", {leaking} of them trained on other domains" if leaking else "")
        + f". Train the model's recipe with data.training_domains restricted to {domains}, each of "
        "them left out in turn"
    )
