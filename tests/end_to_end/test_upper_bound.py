"""A row that was trained on the target's labels is called an upper bound wherever it appears."""

from pathlib import Path

import pytest
from rich.console import Console
from tests.sweeps.made_records import comparison_plan

import unseen
from unseen.cli.main import parse
from unseen.errors import SettingsError
from unseen.reports.page.results import conclude, ranking
from unseen.reports.page.studies import load_runs, make_studies
from unseen.reports.page.write import write_report
from unseen.reports.tables import build_tables
from unseen.results.folder import RunFolder
from unseen.results.result import UPPER_BOUND
from unseen.sweeps.tables import Comparison

TINY = {"steps": 40, "images_per_domain": 8, "network.image_size": 16, "evaluate_every": 20}
TINY |= {"optimizer.lr": 3e-3}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        where = {"runs": tmp_path_factory.mktemp("runs"), "console": Console(quiet=True)}
        chosen = {"methods": "dmg", "unseen": "outlines", "upper_bound": True}
        return unseen.compare("digits", **chosen, **where, **TINY)


def test_it_is_the_last_row_and_trained_on_the_unseen_domain(comparison: Comparison) -> None:
    *_, bound = comparison.results
    assert bound.trained_on_unseen
    assert bound.training_domains == ("plain", "blended", "coloured", "outlines")
    assert bound.unseen_domains == ("outlines",)
    for table in comparison.shown:
        assert [row.name for row in table.rows] == ["dmg", UPPER_BOUND]
        note = next(each for each in table.notes if each.startswith(UPPER_BOUND))
        assert "test images of that domain only (outlines 99 of 445)" in note
        assert not any(note.startswith("Not comparable") for note in table.notes)
    inside = bound.view("source", "in_domain")
    assert set(inside) == {"plain", "blended", "coloured"}  # as for the other rows


def test_every_format_says_so_and_never_in_bold(comparison: Comparison) -> None:
    for file in comparison.home.glob("source/*_domain.*"):
        text = file.read_text(encoding="utf-8")
        assert UPPER_BOUND in text, file
        rows = [line for line in text.splitlines() if UPPER_BOUND in line and "&" in line]
        rows += [line for line in text.splitlines() if line.startswith(f"| {UPPER_BOUND}")]
        assert rows or file.suffix == ".csv"
        assert not any("textbf" in row or "**" in row for row in rows)
    ahead = [
        result.model_copy(update={"rules": _all_right(result)} if result.trained_on_unseen else {})
        for result in comparison.results
    ]
    for table in build_tables(ahead, "source"):
        *_, last = table.rows
        assert not any(cell and cell.best for cell in last.cells)
        assert last.cells[0].estimate.mean >= max(row.cells[0].estimate.mean for row in table.rows)


def _all_right(result):
    right = {
        view: {
            domain: each.model_copy(update={"measures": dict.fromkeys(each.measures, 1.0)})
            for domain, each in measured.items()
        }
        for view, measured in result.rules["source"].views.items()
    }
    return {"source": result.rules["source"].model_copy(update={"views": right})}


def test_the_report_never_ranks_it(comparison: Comparison, tmp_path: Path) -> None:
    runs = comparison.folders[0].parent
    (study,) = make_studies(load_runs(runs)[0], None)
    assert study.rows[-1][0] == f"aggregate, {UPPER_BOUND}"  # never what others are compared to
    assert [each.name for each in ranking(study, "source")] == ["dmg"]
    told = conclude(study, "source")
    assert told.headline.startswith("dmg")
    assert any(f"{UPPER_BOUND}: " in each and "not ranked" in each for each in told.sentences)
    assert not any("for lack of results" in each for each in told.sentences)
    page = write_report(comparison.home / "source", tmp_path).read_text(encoding="utf-8")
    assert UPPER_BOUND.replace("'", "&#39;") in page


def test_the_card_says_so(comparison: Comparison) -> None:
    *_, path = comparison.folders
    card = RunFolder(path).card.read_text(encoding="utf-8")
    assert f"# aggregate, {UPPER_BOUND} on digits" in card
    assert (
        "| outlines | trained on, and measured as if unseen (upper bound) | 346 | 0 | 99 |" in card
    )
    assert "accuracy, upper bound" in card
    assert "out of domain" not in card
    assert "It was trained on labelled images of outlines, too" in card
    model = unseen.load_run(path)
    assert model.evaluate()["out_of_domain"]["outlines"].images == 99


def test_a_variant_of_ones_own_is_called_a_bound_too() -> None:
    plan = comparison_plan(
        "digits", "aggregate", unseen="plain", overrides={"data.train_on_unseen": True}
    )
    assert [each.method for each in plan.draws] == [f"aggregate, {UPPER_BOUND}"]


def test_it_needs_a_domain_to_be_unseen(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"set data\.unseen_domain"):
        unseen.fit("digits/aggregate", runs=tmp_path, **{"data.train_on_unseen": True, "steps": 2})
    assert parse(["compare", "digits", "--upper-bound"]).upper_bound
