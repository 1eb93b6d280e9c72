"""What an audit found: as lines, as data, as a web page that fetches nothing, and as a file of
groups."""

import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.atomic import atomic_file
from unseen.data.prepare import PreparedImages
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import image_sheet, picture
from unseen.reports.page import parts

_TEMPLATE = Path(__file__).with_name("audit.html")
_MOST_SHOWN, _MOST_LISTED = 48, 1000


class Example(NamedTuple):
    """Something that shows a finding, and the positions in the index of the images it is about."""

    caption: str
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or should be looked at."""

    kind: str
    count: int
    text: str
    """What was found, and what to do about it."""
    examples: tuple[Example, ...] = ()
    """All there are, the clearest first; some, where all images of a class are meant."""


@dataclass(frozen=True)
class AuditReport:
    """Everything that an audit found in a dataset."""

    dataset: str
    """Its name; of a user's images, that of their folder or list."""
    names: tuple[str, ...]
    """All images."""
    findings: tuple[Finding, ...]
    groups: tuple[str, ...]
    """For each image the group that it belongs to, which its copies are in, too."""
    checked: tuple[str, ...]

    @property
    def about(self) -> str:
        """A sentence on what was looked at."""
        text = f"Looked at: {', '.join(self.checked)}."
        return text if "labels" in self.checked else f"{text} Labels are checked with --labels."

    def lines(self) -> Iterator[str]:
        """Yield what was found, for a terminal."""
        for finding in self.findings:
            yield f"{parts.capital(finding.kind)}: {finding.text}"
        yield self.about if self.findings else f"Nothing was found. {self.about}"

    def of(self, kind: str) -> Finding | None:
        """Return the finding of a kind; None where there is none."""
        return next((finding for finding in self.findings if finding.kind == kind), None)

    def as_json(self) -> dict[str, Any]:
        """Return everything; groups but for those of one image."""
        found: list[dict[str, Any]] = []
        for each in self.findings:
            examples = [(e.caption, [self.names[row] for row in e.rows]) for e in each.examples]
            listed = [{"caption": caption, "images": images} for caption, images in examples]
            found.append(asdict(each) | {"examples": listed})
        about = {"dataset": self.dataset, "images": len(self.names), "checked": self.checked}
        return about | {"findings": found, "groups": dict(self._together())}

    def _together(self) -> list[tuple[str, str]]:
        _, group, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        pairs = zip(self.names, self.groups, sizes[group.ravel()], strict=True)
        return [(name, called) for name, called, size in pairs if size > 1]

    def write_groups(self, path: Path) -> None:
        """Write a CSV file for `data.group`, in which copies are in one group."""
        with atomic_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("path", "group"), *self._together()])

    def write_page(self, prepared: PreparedImages, path: Path) -> None:
        """Write the page, with pictures of what was found."""
        sections = [_section(finding, prepared) for finding in self.findings]
        page = parts.render_page(_TEMPLATE, {"report": self, "sections": sections})
        parts.write_whole(path, page)


def _section(finding: Finding, prepared: PreparedImages) -> parts.Section:
    names, pictures = prepared.index.names, []
    shown = [each for each in finding.examples if each.rows][:_MOST_SHOWN]
    for number, each in enumerate(shown, start=1):
        caption = f"{each.caption} · {number}" if len(each.rows) > 1 else each.caption
        pixels = prepared.batch(np.array(each.rows)).permute(0, 2, 3, 1).contiguous().numpy()
        pictures += [picture(p, caption, names[r]) for r, p in zip(each.rows, pixels, strict=True)]
    lines = [" = ".join([names[row] for row in e.rows]) or e.caption for e in finding.examples]
    more = [f"… and {len(lines) - _MOST_LISTED:,} more"] if len(lines) > _MOST_LISTED else []
    anchor, about = finding.kind.replace(" ", "-"), f"{len(shown)} of {len(lines)}"
    sheet = Figure(anchor, about, "", (image_sheet("", pictures),), wide=True)
    folded = parts.Fold("Files", code="\n".join(lines[:_MOST_LISTED] + more))
    title = f"{parts.capital(finding.kind)}: {finding.count:,}"
    own = (sheet,) * bool(shown) + (folded,) * bool(lines)
    return parts.Section(anchor, title, finding.text, own)
