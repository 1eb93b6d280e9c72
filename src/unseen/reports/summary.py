"""One run in one small table: accuracy by domain in each of the three views."""

from rich.markup import escape
from rich.table import Table

from unseen.records.result import RunResult, Views
from unseen.records.views import VIEWS


def run_table(result: RunResult) -> Table:
    """The views of a finished run under its own selection rule."""
    rule = result.selection
    chosen = result.under(rule)
    title = (
        f"{result.method} on {result.dataset} ({result.backbone}, seed {result.seed}), "
        f"selection: {rule}, step {chosen.step}"
    )
    return views_table(chosen.views, title)


def views_table(views: Views, title: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    table.add_column("domain")
    for column in ("view", "accuracy", "images", "calibration error"):
        table.add_column(column, justify="left" if column == "view" else "right")
    for view, by_domain in views.items():
        for domain, measured in by_domain.items():
            table.add_row(
                escape(domain),
                VIEWS[view].title,
                f"{measured.accuracy:.1%}",
                str(measured.images),
                f"{measured.calibration_error:.1%}",
            )
    return table
