"""Feature maps: penultimate features in two dimensions, coloured by domain and by class."""

import numpy as np

from unseen.reports.figures.panels import Cloud, Figure, Key, ScatterPanel
from unseen.reports.page.arrays import pictures
from unseen.reports.page.methods.masks import domain_color
from unseen.reports.page.parts import Fold, Part, Section
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.reports.page.training import safe

MOST_MAPS = 24
_LEGIBLE = 12  # classes that can be told apart by colour


def features_section(study: Study, tsne: bool) -> Section | None:
    first: dict[tuple[str, tuple[str, str]], Run] = {}
    for run in sorted(study.runs, key=lambda run: run.seed):
        first.setdefault((run.column, run.row), run)
    parts: list[Part] = []
    for column in study.columns:
        for row in study.rows:
            run = first.get((column, row))
            figure = _map(study, run, tsne) if run and len(parts) < MOST_MAPS else None
            if figure is not None:
                parts.append(Fold(figure.title, (figure,), open=not parts))
    if not parts:
        return None
    how = "t-SNE (perplexity 30, seed 0)" if tsne else "the two main axes (PCA)"
    return Section(
        "features",
        "Feature maps",
        f"What the last layer sees, by {how}. Hollow: images of the unseen domain. A method that "
        "generalises puts an unseen image next to its class, not next to its domain.",
        tuple(parts),
    )


def _map(study: Study, run: Run, tsne: bool) -> Figure | None:
    arrays = pictures(run)
    if "features/values" not in arrays or run.result is None:
        return None
    values = arrays["features/values"].astype(np.float64)
    places = unit_square(by_tsne(values) if tsne else principal_axes(values))
    names = [str(name) for name in arrays["domains"]]
    domain_of, labels = arrays["features/domain"], arrays["features/label"]
    unseen = np.isin(domain_of, [names.index(d) for d in run.unseen_domains if d in names])
    by_domain = [
        Cloud(name, domain_color(study, name), places[domain_of == d], name in run.unseen_domains)
        for d, name in enumerate(names)
        if name in study.domains and (domain_of == d).any()
    ]
    classes = run.result.classes
    by_class = [
        Cloud(f"{classes[c]}{', unseen domain' * hollow}", c % 12, places[chosen], hollow)
        for c in np.unique(labels)
        for hollow in (False, True)
        if (chosen := (labels == c) & (unseen == hollow)).any()
    ]
    domains = tuple(Key(c.label, c.color, "hollow" if c.hollow else "dot") for c in by_domain)
    named = tuple(Key(name, c % 12, "dot") for c, name in enumerate(classes))
    panels = (
        ScatterPanel("coloured by domain", tuple(by_domain), domains),
        ScatterPanel("coloured by class", tuple(by_class), named if len(named) <= _LEGIBLE else ()),
    )
    title = f"{study.row_name(run.row)}, {run.column} unseen, seed {run.seed}"
    name = f"features_{safe(run.label)}_{safe(run.backbone)}_{safe(run.column)}"
    return Figure(name, title, "", panels)


def principal_axes(values: np.ndarray) -> np.ndarray:
    """The two directions of largest variance; signs are fixed, for a map that stays the same."""
    centred = values - values.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2]
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    places = centred @ (axes * signs[:, None]).T
    return places if places.shape[1] == 2 else np.pad(places, ((0, 0), (0, 1)))


def by_tsne(values: np.ndarray) -> np.ndarray:
    from sklearn.manifold import TSNE

    perplexity = min(30.0, max((len(values) - 1) / 3, 1.0))
    map_ = TSNE(perplexity=perplexity, max_iter=500, init="pca", random_state=0)
    return map_.fit_transform(values.astype(np.float32)).astype(np.float64)


def unit_square(places: np.ndarray) -> np.ndarray:
    """From 0 to 1 in the longer direction, centred in the other."""
    low, high = places.min(axis=0), places.max(axis=0)
    span = float((high - low).max()) or 1.0
    return 0.5 + (places - (low + high) / 2) / span
