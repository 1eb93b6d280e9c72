"""Published numbers stand beside own results, never among them."""

from pathlib import Path

import pytest

from unseen.reports.page.published import by_source, published_numbers, published_section
from unseen.reports.page.runs import load_runs
from unseen.reports.page.studies import Study, make_studies
from unseen.reports.page.write import write_report
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
    found = [
        each.accuracy
        for (source, chosen), numbers in by_source(dataset).items()
        for each in numbers
        if (each.method, chosen) == (method, rule) and source.startswith("DomainBed")
    ]
    assert found == [accuracy]


@pytest.mark.parametrize("name", ["irm", "vrex", "groupdro", "mixup", "cdann", "coral"])
def test_pages_of_methods_quote_them(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "methods" / f"{name}.md"
    (numbers,) = [
        numbers
        for (source, rule), numbers in by_source("pacs").items()
        if source.startswith("DomainBed") and rule == "source"
    ]
    (own,) = [each for each in numbers if each.method == name]
    assert f"{own.accuracy:.1f} against" in page.read_text(encoding="utf-8")


def _study(runs: Path) -> Study:
    return make_studies(load_runs(runs)[0], None)[0]


def test_the_report_shows_them_apart(make_run, tmp_path: Path) -> None:
    make_run("dmg", {"sketch": 0.7}, {"photo": 0.8})
    study = _study(tmp_path / "runs")
    section = published_section(study)
    assert section is not None
    assert "not a comparison" in str(section.parts[0])
    assert {row[0] for row in study.rows} == {"dmg"}
    for table in study.tables("source"):
        assert [row.method for row in table.rows] == ["dmg"]
    page = write_report(tmp_path / "runs", tmp_path / "page").read_text(encoding="utf-8")
    assert "Published numbers" in page
    assert "out of domain, published" in page


def test_nothing_is_shown_beside_other_settings(make_run, tmp_path: Path) -> None:
    make_run("dmg", {"sketch": 0.7, "photo": 0.8}, {"cartoon": 0.8})
    assert published_section(_study(tmp_path / "runs")) is None
