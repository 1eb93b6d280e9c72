"""What is decided by time, and what a search makes of its records; nothing is trained."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from rich.console import Console
from tests.auto.simulated import Machine, worth

from unseen.automatic import search as room
from unseen.automatic.choice import EVERYWHERE, NESTED, SAME_RUNS
from unseen.automatic.search import Search
from unseen.automatic.subject import open_subject
from unseen.errors import DataError
from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment


def write_images(
    root: Path, domains: Sequence[str], classes: Mapping[str, int] | None = None
) -> None:
    """Write a folder domain/class/*."""
    for domain in domains:
        for name, number in (classes or {"one": 2, "two": 2}).items():
            (root / domain / name).mkdir(parents=True)
            for image in range(number):
                Image.new("RGB", (8, 8), (image, 0, 0)).save(root / domain / name / f"{image}.png")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, Search]:
    """A search from start to end, by a clock that stands still."""
    machine = Machine(tmp_path_factory.mktemp("whole"), stands_still=True)
    search = machine.search()
    search.run()
    return machine, search


def test_the_best_is_found_and_plain_training_is_judged_by_the_same_rules(
    whole: tuple[Machine, Search],
) -> None:
    _, search = whole
    found, plain = search.expectation(), search.expectation(plain=True)
    assert search.winner().row[0] == "masks"
    assert found is not None
    assert plain is not None
    assert found.kind == NESTED
    assert {row[0] for row in found.rows.values()} == {"masks"}
    gains = [found.by_place[place] - plain.by_place[place] for place in found.by_place]
    assert gains == pytest.approx([0.08] * 4)


def test_labels_of_a_domain_change_nothing_in_what_is_trained_and_chosen_for_it(
    whole: tuple[Machine, Search], tmp_path: Path
) -> None:
    def other_labels(candidate: str, *about) -> float:
        experiment, domain = about
        if domain == "outlines":
            return 0.99 if candidate == "coral" else 0.1
        seen = "outlines" not in experiment.data.unseen_domain
        return worth(candidate, *about) + 0.3 * seen * (candidate == "sd")

    search = Machine(tmp_path, worth=other_labels, stands_still=True).search()
    search.run()
    branch = frozenset({"outlines"})
    assert search.choice(branch) == whole[1].choice(branch)
    assert search.choices()["outlines"] == whole[1].choices()["outlines"]
    assert search.winner().row[0] != "masks"  # for all places together the labels do count


@pytest.mark.parametrize("dies_after", [1, 65])
def test_a_killed_search_goes_on_and_decides_the_same(
    whole: tuple[Machine, Search], tmp_path: Path, dies_after: int
) -> None:
    machine, first = whole
    broken = Machine(tmp_path, dies_after=dies_after, stands_still=True)
    with pytest.raises(KeyboardInterrupt):
        broken.search().run()
    again = Machine(tmp_path, stands_still=True)
    second = again.search()
    second.run()
    assert sorted(broken.trained + again.trained) == sorted(machine.trained)
    assert (second.winner(), second.choices()) == (first.winner(), first.choices())
    assert second.expectation() == first.expectation()


def test_classifiers_are_compared_without_time_for_pairs_too(tmp_path: Path) -> None:
    """They were trained before it turned out that there is no time for pairs of places; a search
    that was killed afterwards judges them by the same runs."""

    def search(machine: Machine) -> Search:
        found = machine.search(**{"network.name": "resnet18", "network.pretrained": "true"})
        for name in [n for n, each in found.candidates.items() if each.tier == "head"][1:]:
            del found.candidates[name]  # one classifier shows it
        return found

    machine = Machine(tmp_path / "whole", 30.0, stands_still=True)
    first = search(machine)
    first.run()
    last = len(machine.trained) - 4
    broken = Machine(tmp_path / "killed", 30.0, dies_after=last, stands_still=True)
    with pytest.raises(KeyboardInterrupt):
        search(broken).run()
    again = Machine(tmp_path / "killed", 30.0, stands_still=True)
    second = search(again)
    second.run()
    assert not first.design.nested
    compared = first.design.worth(first.scores)
    assert any(first.candidates[name].tier == "head" for name, _ in compared)
    assert sorted(broken.trained + again.trained) == sorted(machine.trained)
    assert (second.scores, second.winner()) == (first.scores, first.winner())


def test_time_that_was_used_counts_when_the_command_goes_on(tmp_path: Path) -> None:
    """What was learned of the machine, too; a record that is newer than what was kept last tells
    when the command was killed."""
    machine = Machine(tmp_path, slowness=1.3)
    search = machine.search()
    search.run()
    again = Machine(tmp_path).search()
    assert again.clock.used == pytest.approx(machine.now)
    assert again.clock.slowness == search.clock.slowness > 1.1
    later = (tmp_path / "plan.json").stat().st_mtime + 30
    os.utime(next(iter(search.runs.values())).path / "result.json", (later, later))
    assert Machine(tmp_path).search().clock.used == pytest.approx(machine.now + 30)
    other = Machine(tmp_path, seconds=1200.0).search()
    assert other.clock.used == 0


def test_time_is_kept_and_used(tmp_path: Path) -> None:
    """Whether steps take as long as they were measured to take, or not; the model on all places is
    trained in what is left. More time tries more, trains longer, and compares the best again."""
    tried = []
    for minutes, slowness in ((4, 1.3), (20, 0.7), (90, 1.0)):
        machine = Machine(tmp_path / str(minutes), 60 * minutes, slowness=slowness)
        search = machine.search()
        search.run()
        name, steps = search.winner().row
        last = slowness * search.costs.run(search.candidates[name], steps, 0)
        assert machine.now + last <= 1.15 * 60 * minutes
        tried.append((len(search.screened), steps))
    assert tried[0] < tried[1] <= tried[2]
    compared = {row for row, left_out, _ in search.runs if len(left_out) == 2}
    assert (name, steps) in compared


@pytest.mark.parametrize(("seconds_left", "seeds"), [(1000, [0, 1, 2]), (220, [0, 1]), (20, [0])])
def test_where_time_is_left_trainings_with_other_seeds_are_averaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds_left: float, seeds: list[int]
) -> None:
    """Each of them takes 100 seconds."""
    machine = Machine(tmp_path, 60.0)
    search = machine.search()
    search.run()
    machine.now = search.clock.seconds - seconds_left - 100
    trained: list[int] = []
    averaged: list[int] = []

    def train(experiment: Experiment, folder: RunFolder, console: Console) -> SimpleNamespace:
        folder.path.mkdir(parents=True)
        folder.timing.write_text(json.dumps({"seconds": 100.0}))
        machine.now += 100
        trained.append(experiment.seed)
        return SimpleNamespace(folder=folder)

    def average(paths: Sequence[Path], output: Path, console: Console) -> None:
        averaged.append(len(paths))
        output.mkdir()

    for name, fake in (("finish_run", train), ("merge", average), ("Run", Path)):
        monkeypatch.setattr(room, name, fake)
    monkeypatch.setattr(Search, "_has_mean", lambda *about: True)
    assert search.finish() == tmp_path / "model"
    assert trained == seeds
    assert averaged == ([len(seeds)] if len(seeds) > 1 else [])


@pytest.mark.parametrize("settings", [{}, {"data.training_domains": "plain,outlines"}])
def test_without_time_for_pairs_or_with_two_places_nothing_is_nested(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    search = Machine(tmp_path, 600.0 if settings else 60.0).search(**settings)
    search.run()
    assert search.design.branches == [EVERYWHERE]
    assert {len(left_out) for _, left_out, _ in search.runs} == {1}
    found = search.expectation()
    assert found is not None
    assert found.kind == SAME_RUNS
    assert set(found.rows.values()) == {search.winner().row}


def test_a_domain_that_is_kept_out_has_no_part_in_any_run(tmp_path: Path) -> None:
    """With three places left, pairs leave one, and methods that compare domains train on two."""
    search = Machine(tmp_path, 1800.0).search(unseen="outlines")
    search.run()
    left_out: dict[str, set[int]] = {}
    for (row, out, _), run in search.runs.items():
        data = run.experiment.data
        assert "outlines" not in (*data.training_domains, *data.unseen_domain)
        assert data.training_domains
        left_out.setdefault(row[0], set()).add(len(out))
    assert left_out["coral"] == left_out["vrex"] == {1}
    assert left_out["masks"] == {1, 2}


def test_one_domain_is_refused_with_the_reason(tmp_path: Path) -> None:
    write_images(tmp_path, ["hospital"])
    with pytest.raises(DataError, match=r"only one domain with labels \(hospital\).*two domains"):
        open_subject(tmp_path, "", {})
    with pytest.raises(DataError, match="no folder, no manifest and no dataset"):
        open_subject("nowhere", "", {})


def test_many_domains_are_dealt_out_to_places(tmp_path: Path) -> None:
    write_images(tmp_path, [f"camera{number}" for number in range(8)])
    subject = open_subject(tmp_path, "", {})
    assert len(subject.places) == 6
    assert sorted(subject.domains) == [f"camera{number}" for number in range(8)]
    assert max(map(len, subject.places.values())) == 2


def test_skewed_classes_are_balanced(tmp_path: Path) -> None:
    write_images(tmp_path, ["a", "b"], {"common": 23, "rare": 2})
    experiment = open_subject(tmp_path, "", {}).experiment
    assert (experiment.metric, experiment.sampling) == ("balanced", "class_balanced")
    assert open_subject(tmp_path, "", {"metric": "macro_f1"}).experiment.metric == "macro_f1"
