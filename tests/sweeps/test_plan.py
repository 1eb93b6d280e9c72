"""Plans: which runs a sweep has, what its draws are, and what is wrong before anything runs."""

from pathlib import Path
from typing import Any

import pytest
from tests.sweeps.made_records import DOMAINS, comparison_plan, small_plan

from unseen.errors import SettingsError
from unseen.sweeps.draws import PlannedRun
from unseen.sweeps.plan import Plan, plan_sweep
from unseen.sweeps.sweep_file import load_sweep


def drawn(plan: Plan, **condition: Any) -> list[dict[str, Any]]:
    """The searched values of the draws under a condition, by number."""

    def fits(run: PlannedRun) -> bool:
        return all(getattr(run.condition, key) == value for key, value in condition.items())

    return [run.values for run in plan.singles if fits(run)]


def test_the_small_sweep_has_24_runs() -> None:
    plan = plan_sweep(load_sweep("digits"), "digits")
    assert len(plan.listed) == len(plan.distinct) == 24
    assert {(t.condition.method, *t.condition.unseen, t.draw) for t in plan.singles} == {
        (method, domain, draw)
        for method in ("aggregate", "dmg")
        for domain in DOMAINS
        for draw in range(3)
    }
    (first,) = {t.condition.backbone for t in plan.singles}
    assert first == "small_cnn"


def test_draw_0_is_the_recipe_as_a_comparison_has_it() -> None:
    plan = small_plan(methods="aggregate,dmg", seeds="0-1")
    overrides = plan.sweep.settings
    compared = comparison_plan("digits", ["aggregate", "dmg"], [0, 1], overrides=overrides)
    own = {run.identity for run in plan.singles if run.draw == 0}
    assert own == {run.identity for run in compared.singles}


def test_draws_are_those_of_method_seed_and_number_alone() -> None:
    plan = small_plan(draws=4, seeds="0-1", methods="aggregate,dmg")
    first = drawn(plan, method="aggregate", unseen=("plain",), seed=0)
    assert first[1]["optimizer.lr"] == 0.0003665  # the same on every machine and for ever
    for domain in DOMAINS:
        assert drawn(plan, method="aggregate", unseen=(domain,), seed=0) == first
    others = [
        drawn(plan, method="aggregate", unseen=("plain",), seed=1),
        drawn(plan, method="dmg", unseen=("plain",), seed=0),
        drawn(small_plan(draws=4, search_seed=1), unseen=("plain",), seed=0),
    ]
    for other in others:
        assert other[0] == first[0]
        assert all(a != b for a, b in zip(other[1:], first[1:], strict=True))
    assert drawn(small_plan(draws=2), unseen=("plain",)) == first[:2]


def test_ranges_of_the_file_take_the_place_of_those_on_the_settings() -> None:
    changes = {"search": "", "draws": 30, "unseen": "plain"}
    ranges = {"images_per_domain": {"log_uniform": [2, 4]}, "schedule.name": {"choice": ["cosine"]}}
    values = drawn(small_plan(**changes, ranges=ranges))[1:]
    assert set(values[0]) == {
        *("optimizer.lr", "optimizer.weight_decay", "images_per_domain", "schedule.name")
    }
    assert {each["images_per_domain"] for each in values} == {2, 3, 4}
    assert {each["schedule.name"] for each in values} == {"cosine"}
    assert all(3e-4 <= each["optimizer.lr"] <= 3e-3 for each in values)  # digits.yaml's
    assert all(1e-6 <= each["optimizer.weight_decay"] <= 1e-2 for each in values)


def test_what_is_searched_can_be_named_and_differ_by_method() -> None:
    plan = small_plan(
        methods="aggregate,dmg",
        unseen="plain",
        search="optimizer.lr,method.mask_lr",
        by_method={"dmg": {"ranges": {"optimizer.lr": {"choice": [0.5]}}}},
    )
    assert set(drawn(plan, method="aggregate")[1]) == {"optimizer.lr"}
    masked = drawn(plan, method="dmg")
    assert [each["optimizer.lr"] for each in masked] == [0.003, 0.5, 0.5]
    assert masked[0]["method.mask_lr"] == 0.1  # the recipe's
    assert masked[1]["method.mask_lr"] != masked[2]["method.mask_lr"]


def test_a_grid_is_every_combination_and_methods_add_to_it() -> None:
    plan = small_plan(
        draws=None,
        unseen="plain",
        methods="aggregate,dmg",
        grid={"optimizer.lr": ["1e-3", "1e-2"]},
        by_method={"dmg": {"grid": {"method.overlap_weight": [0.1, 1]}}},
    )
    assert drawn(plan, method="aggregate") == [{"optimizer.lr": 1e-3}, {"optimizer.lr": 1e-2}]
    both = [(e["optimizer.lr"], e["method.overlap_weight"]) for e in drawn(plan, method="dmg")]
    assert both == [(1e-3, 0.1), (1e-3, 1.0), (1e-2, 0.1), (1e-2, 1.0)]


def test_equal_draws_are_one_run() -> None:
    plan = small_plan(draws=5, unseen="plain", ranges={"optimizer.lr": {"choice": [3e-3]}})
    assert len(plan.singles) == 5
    assert len(plan.distinct) == 1


def test_pairs_hold_out_every_target_with_every_other_domain() -> None:
    plan = small_plan(pairs="all", draws=2)
    assert len(plan.singles) == 8
    assert len(plan.pairs) == 12
    assert {t.condition.unseen for t in plan.pairs} == {
        *(("plain", "blended"), ("plain", "coloured"), ("plain", "outlines")),
        *(("blended", "coloured"), ("blended", "outlines"), ("coloured", "outlines")),
    }
    for condition, draws in plan.draws.items():
        for run in draws:
            partners = plan.partners[condition][run.draw]
            assert set(partners) == set(DOMAINS) - set(condition.unseen)
            assert all(pair.values == run.values for pair in partners.values())
    only = small_plan(pairs="all", draws=2, unseen="plain")
    assert {t.condition.unseen for t in only.pairs} == {("plain", d) for d in DOMAINS[1:]}


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"datasets": "digit"}, ["unknown dataset 'digit'; did you mean"]),
        ({"unseen": "photo"}, ["unseen: unknown domain 'photo' (known: blended, coloured,"]),
        (
            {"methods": "dgm", "settings.seed": 1, "settings.network.name": "small_cnn"},
            [
                "settings.network.name: is chosen by 'backbones'",
                "settings.seed: is chosen by 'seeds'",
                "unknown recipe 'digits/dgm'; did you mean 'digits/dmg'?",
            ],
        ),
        ({"settings.stps": 1}, ["settings: stps: unknown key; did you mean 'steps'? (digits/agg"]),
        (
            {
                "search": "optimizer.lr,method.overlap_wait,steps",
                "ranges": {"augment.flip": {"uniform": [0, 1]}, "seed": {"choice": [1]}},
            },
            [
                "ranges.augment.flip: is not searched; add it to search, or leave search out",
                "ranges.seed: is chosen by 'seeds'",
                "search.method.overlap_wait: unknown setting; did you mean 'method.overlap_weig",
                "search: steps has no range; give it one under ranges",
            ],
        ),
        (
            {"search": "", "ranges": {"augment.flip": {"uniform": [0.5, 1.5]}}},
            ["ranges: augment.flip: should be less than or equal to 1, got 1.5 (digits/aggregate)"],
        ),
        (
            {"draws": None, "grid": {"optimizer.lr": [0.1, -1], "devices.number": [1, 2]}},
            [
                "grid.devices.number: is the same for all runs; give it under settings",
                "grid: optimizer.lr: should be greater than 0, got -1 (digits/aggregate)",
            ],
        ),
        (
            {"by_method": {"aggregate": {"ranges": {"method.mask_lr": {"choice": [1]}}}}},
            ["by_method.aggregate.ranges.method.mask_lr: unknown setting"],
        ),
        (
            {"settings.network.freeze_until": "clasifier"},
            ["digits/aggregate with plain held out: "],
        ),
        ({"selection": "snd"}, ["selection=snd chooses by unlabelled target images"]),
        (
            {"methods": "aggregate,reweighting", "pairs": "all"},
            [
                "pairs: digits/reweighting cannot hold out a second domain: it adapts",
                "methods: those that can be trained like this are aggregate",
            ],
        ),
        (
            {"methods": "small", "by_method": {"small": {"variant_of": "agregate"}}},
            ["unknown recipe 'digits/agregate'; did you mean 'digits/aggregate'"],
        ),
    ],
)
def test_mistakes_are_named_before_anything_runs(changes: dict[str, Any], lines: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        small_plan(**changes)
    first, *found = str(caught.value).split("\n")
    assert first == "digits is not a valid sweep:"
    assert len(found) == len(lines), found
    for line, expected in zip(found, lines, strict=True):
        assert line.startswith(f"  {expected}")


def test_draws_without_a_range_are_no_draws(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("datasets: digits\nmethods: aggregate\ndraws: 2\nsearch: method.mask_lr\n")
    with pytest.raises(SettingsError, match="draws: no setting has a range"):
        plan_sweep(load_sweep(file), str(file))


def test_pairs_that_leave_a_method_too_few_domains(tmp_path: Path) -> None:
    """Of three domains a pair leaves one to train on."""

    for domain in ("a", "b", "c"):
        for name in ("x", "y"):
            for number in range(6):
                _picture(tmp_path / domain / name / f"{number}.png")
    changes = {
        "datasets": "folder",
        "methods": "aggregate,mldg,metareg",
        "pairs": "all",
        "search": "",
        "settings.data.root": str(tmp_path),
        "backbones": "small_cnn",
        "settings.network": {"pretrained": False, "image_size": 16},
    }
    with pytest.raises(SettingsError) as caught:
        plan_sweep(load_sweep("digits", changes), "digits")
    lines = str(caught.value).split("\n")[1:]
    *lines, last = lines
    assert [line.split(":")[0].strip() for line in lines] == [
        "folder/mldg with a+b held out",
        "folder/metareg with a+b held out",
    ]
    assert all("needs two training domains or more, found one (c)" in line for line in lines)
    assert last.strip() == "methods: those that can be trained like this are aggregate"


def test_rules_without_labels_are_for_runs_that_all_adapt() -> None:
    assert "snd" not in small_plan().rules
    plan = small_plan(selection="snd", methods="reweighting")
    assert plan.rules == ("source", "last", "infomax", "snd", "bnm", "dev", "oracle")


@pytest.mark.parametrize(("name", "size"), [("pacs", 720), ("pacs_heads", 240)])
def test_the_shipped_sweeps_on_pacs(name: str, size: int, real_data: Path) -> None:
    plan = plan_sweep(load_sweep(name), name)
    assert len(plan.distinct) == size
    assert {run.condition.backbone for run in plan.singles} == {"efficientnet_lite0"}
    assert len(plan.draws) * 20 == size


def test_the_shipped_sweep_on_domainnet(tmp_path: Path) -> None:
    """Six domains as in the real one, with two images each."""
    for domain in ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"):
        for split in ("train", "test"):
            names = [
                f"{domain}/{name}/{split}_{n}.jpg" for name in ("ant", "bee") for n in range(9)
            ]
            (tmp_path / f"{domain}_{split}.txt").write_text(
                "".join(f"{name} {number // 9}\n" for number, name in enumerate(names))
            )
            for name in names:
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).touch()
    plan = plan_sweep(load_sweep("domainnet", {"settings.data.root": str(tmp_path)}), "domainnet")
    assert len(plan.distinct) == 1080
    assert {run.experiment.steps for run in plan.singles} == {15000}
    batches = {run.experiment.images_per_domain for run in plan.singles}
    assert (min(batches), max(batches)) == (8, 32)


def _picture(path: Path) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), (hash(path.name) % 255, 0, 0)).save(path)


def test_a_variant_is_a_row_of_its_own_where_it_is_asked_for() -> None:
    """`unseen sweep FILE methods=aggregate` takes a part of what the file describes."""
    variant = {"variant_of": "aggregate", "settings": {"images_per_domain": 4}}
    changes = {"by_method": {"small": variant}, "draws": None}
    plan = small_plan(methods="aggregate,small", **changes)
    by_row = {run.condition.method: run.experiment for run in plan.singles}
    assert list(by_row) == ["aggregate", "small"]
    assert by_row["small"].method.name == "aggregate"
    assert by_row["small"].images_per_domain == 4 != by_row["aggregate"].images_per_domain
    alone = small_plan(methods="aggregate", **changes)
    assert {run.condition.method for run in alone.singles} == {"aggregate"}
