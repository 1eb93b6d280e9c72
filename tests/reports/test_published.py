"""Published numbers stand beside own results, never among them."""

from pathlib import Path

import pytest

from unseen.reports.page.results import PublishedNumber, by_source, published_numbers
from unseen.results.rules import DRAW_RULES
from unseen.settings import catalog


def test_every_number_has_its_source() -> None:
    numbers = published_numbers()
    assert len(numbers) > 300
    assert len({each[:3] + each[5:] for each in numbers}) == len(numbers)
    for each in numbers:
        assert each.source
        assert 0 < each.accuracy < 100
        assert each.dataset in catalog.DATASETS
        assert each.rule in {*DRAW_RULES, ""}
        assert each.method == each.method.strip()


def domainbed(dataset: str, rule: str) -> dict[str, PublishedNumber]:
    """What DomainBed reports, by method."""
    return {
        each.method: each
        for (source, chosen), numbers in by_source(dataset).items()
        for each in numbers
        if chosen == rule and source.startswith("DomainBed")
    }


@pytest.mark.parametrize(
    ("method", "dataset", "rule", "accuracy"),
    [
        ("aggregate", "pacs", "source", 85.5),
        ("aggregate", "colored_mnist", "source", 51.5),
        ("aggregate", "rotated_mnist", "source", 98.0),
        ("coral", "domainnet", "source", 41.5),
        ("aggregate", "pacs", "leave-one-domain-out", 83.0),
        ("aggregate", "terra_incognita", "oracle", 53.0),
    ],
)
def test_numbers_of_domainbed(method: str, dataset: str, rule: str, accuracy: float) -> None:
    assert domainbed(dataset, rule)[method].accuracy == accuracy


@pytest.mark.parametrize("name", ["irm", "vrex", "groupdro", "mixup", "cdann", "coral"])
def test_pages_of_methods_quote_them(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "methods" / f"{name}.md"
    own = domainbed("pacs", "source")[name]
    words = page.read_text(encoding="utf-8").split()
    assert f"{own.accuracy:.1f} against" in " ".join(words)


def test_the_report_shows_them_apart(make_run, studies, report) -> None:
    make_run("dmg", {"sketch": 0.7}, {"photo": 0.8})
    page = report()
    assert "out of domain, published" in page
    assert "a reference, not a comparison" in page
    (study,) = studies()
    assert {row.method for table in study.built_tables("source") for row in table.rows} == {"dmg"}


def test_nothing_is_shown_beside_other_settings(make_run, report) -> None:
    make_run("dmg", {"sketch": 0.7, "photo": 0.8}, {"cartoon": 0.8})
    assert "out of domain, published" not in report()
