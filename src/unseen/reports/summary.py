"""One run in one small table: accuracy by domain in each of the three views."""

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

_TITLES = {
    "out_of_domain": "out of domain",
    "in_domain": "in domain",
    "known_domain": "known domain",
}


def run_table(result: Mapping[str, Any]) -> Table:
    """The views of a finished run under its own selection rule."""
    rule = result["selection"]
    chosen = result["results"][rule]
    title = (
        f"{result['method']} on {result['dataset']} ({result['backbone']}, seed {result['seed']}), "
        f"selection: {rule}, step {chosen['step']}"
    )
    return views_table(chosen["views"], title)


def views_table(views: Mapping[str, Any], title: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    table.add_column("domain")
    for column in ("view", "accuracy", "images", "calibration error"):
        table.add_column(column, justify="left" if column == "view" else "right")
    for view, by_domain in views.items():
        for domain, summary in by_domain.items():
            table.add_row(
                escape(domain),
                _TITLES[view],
                f"{summary['accuracy']:.1%}",
                str(summary["count"]),
                f"{summary['ece']:.1%}",
            )
    return table
