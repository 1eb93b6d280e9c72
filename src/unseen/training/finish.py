"""The end of a run: what its weights are worth under every selection rule, and its files."""

from collections.abc import Hashable, Iterator, Mapping

from unseen.atomic import write_json
from unseen.data.roles import warnings_about_images
from unseen.methods.base import DomainAware, Method
from unseen.reports.card import write_card
from unseen.results.files import write_arrays
from unseen.results.measure import measure_checkpoint
from unseen.results.result import Merged, RuleResult, RunResult, Views
from unseen.results.rules import choose
from unseen.settings.experiment import complete_settings, identity
from unseen.training.build import Run, rules_of
from unseen.training.outputs import draw, make_profile
from unseen.training.session import Session

Measured = tuple[Views, float]
"""Views, and the temperature of the weights."""


def finish(session: Session) -> None:
    """Measures what every rule chose, then writes the files of every run."""
    rules = rules_of(session.shared)[::-1]
    chosen = {
        number: {rule: choose(rule, run.evaluations) for rule in rules}
        for number, run in session.active
    }
    session.fabric.barrier()  # the first process writes the weights that all of them read
    at_steps = {rule: tuple(steps[rule] for steps in chosen.values()) for rule in rules}
    measured = measure_rules(session, at_steps)
    if not session.writes:
        return
    times = session.times()
    session.learner.write_weights(chosen)
    session.learner.use(session.shared.selection)
    for number, steps in chosen.items():
        results = {rule: rule_result(steps[rule], measured[rule][number]) for rule in rules}
        write_files(session, number, results, times)


def measure_rules(
    session: Session, made_of: Mapping[str, Hashable]
) -> dict[str, dict[int, Measured]]:
    """Measures the weights that each rule prefers, by rule and run; rules whose weights are made of
    the same are measured once."""
    found: dict[Hashable, dict[int, Measured]] = {}
    for rule, what in made_of.items():
        if what not in found:
            session.learner.use(rule)
            found[what] = _measure(session)
    return {rule: found[what] for rule, what in made_of.items()}


def _measure(session: Session) -> dict[int, Measured]:
    uses_domain = isinstance(session.learner.method, DomainAware)
    found: dict[int, Measured] = {}
    with session.answering():
        for cohort in session.cohorts():
            measured = measure_checkpoint(
                cohort.evaluator, cohort.predict, cohort.roles, uses_domain
            )
            found |= zip(cohort.numbers, measured, strict=True)
    return found


def rule_result(step: int, measured: Measured) -> RuleResult:
    views, temperature = measured
    return RuleResult(step=step, views=views, temperature=temperature)


def write_files(
    session: Session,
    number: int,
    results: dict[str, RuleResult],
    times: Mapping[str, float],
    merged: Merged | None = None,
) -> None:
    """Writes all files of a run at its end, for the weights in use; result.json marks it as
    finished. For a model that was averaged from others, the times are those of all of them."""
    run, method = session.runs[number], session.learner.method_of(number)
    folder, steps = run.folder, merged.steps if merged else session.steps
    with session.answering():
        about = (method, session.feed, run.images, session.fabric.autocast)
        pictures, profile = draw(*about), make_profile(*about)
    write_json(folder.timing, {**times, "seconds_per_step": times["seconds"] / steps})
    write_arrays(folder.pictures, pictures)
    profile.write(folder.profile)
    if arrays := method.arrays():
        write_arrays(folder.arrays, arrays)
    result = _result(run, method, session.steps, results, merged)
    write_card(folder, complete_settings(run.experiment), result)
    folder.finish(result)


def _result(
    run: Run, method: Method, steps: int, results: dict[str, RuleResult], merged: Merged | None
) -> RunResult:
    experiment, roles = run.experiment, run.images.roles
    return RunResult(
        run=merged.identity if merged else identity(experiment),
        dataset=experiment.data.name,
        method=experiment.method.name,
        recipe=experiment.recipe,
        backbone=experiment.network.name,
        setting=experiment.setting,
        seed=merged.seeds[0] if merged else experiment.seed,
        steps=steps,
        training_domains=tuple(roles.training_domains),
        unseen_domains=tuple(roles.unseen_domains),
        trained_on_unseen=experiment.data.train_on_unseen,
        classes=tuple(method.task.classes),
        data=run.images.prepared.content,
        selection=experiment.selection,
        metric=experiment.metric,
        remarks=_remarks(run, method, results[experiment.selection]),
        merged=merged,
        rules=results,
    )


def _remarks(run: Run, method: Method, chosen: RuleResult) -> tuple[str, ...]:
    """Returns each remark once: a merged model has those of its parts already."""
    index, roles = run.images.prepared.index, run.images.roles
    on_images = warnings_about_images(index, roles, run.experiment)
    return tuple(dict.fromkeys((*method.remarks, *on_images, *_about_temperature(chosen))))


def _about_temperature(chosen: RuleResult) -> Iterator[str]:
    if chosen.temperature == 1:
        yield (
            "Its probabilities are not calibrated: every validation image was predicted correctly, "
            "so a temperature could not be fitted."
        )
