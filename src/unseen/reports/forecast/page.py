"""A forecast as one web page: no script, style, font or image is fetched from anywhere."""

from pathlib import Path

from unseen.forecast.forecast import FileForecast
from unseen.reports.forecast.sections import (
    classes_section,
    differences_section,
    estimates_section,
    outliers_section,
)
from unseen.reports.forecast.words import about_interval, about_references, percent
from unseen.reports.rendering import render_page, write_whole

_TEMPLATE = Path(__file__).parent / "templates" / "forecast.html"


def write_page(found: FileForecast, path: Path) -> None:
    write_whole(path, render(found))


def render(found: FileForecast) -> str:
    """The page as text."""
    made = found.forecast
    sections = (
        estimates_section(made),
        differences_section(made),
        outliers_section(found),
        classes_section(made),
    )
    content = {
        "text": made.text,
        "model": found.model,
        "images": made.images,
        "source": percent(made.source_accuracy),
        "references": about_references(made),
        "interval": about_interval(),
        "warnings": made.warnings,
        "advice_list": made.advice,
        "sections": [section for section in sections if section is not None],
    }
    return render_page(_TEMPLATE, content)
