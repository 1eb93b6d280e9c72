"""A sweep from Python: random draws of hyper-parameters, chosen without peeking.

Several draws of the learning rate are trained for each method, with one domain held out. Selection
rules then choose among the draws. Only the oracle looks at the held-out domain; the gap between it
and the others is what choosing by test accuracy would pretend to gain.

    python examples/sweep.py
    python examples/sweep.py --steps 500 --draws 10
"""

import argparse

import unseen

arguments = argparse.ArgumentParser()
arguments.add_argument("--steps", type=int, default=40)
arguments.add_argument("--draws", type=int, default=2)
arguments.add_argument("--runs", default="example_runs")
chosen = arguments.parse_args()

# "digits" is a sweep that ships with the package; keyword arguments override its keys. The state is
# in the folder of runs: the same call again trains only what is missing.
results = unseen.sweep(
    "digits",
    methods=["aggregate", "dmg"],
    unseen=["outlines"],
    draws=chosen.draws,
    settings={"steps": chosen.steps, "evaluate_every": chosen.steps, "selection": "oracle"},
    runs=chosen.runs,
)

print(f"{'rule':8} {'method':10} draw  outlines  settings")
for found in results.chosen:
    run = unseen.load_run(found.run.path)
    accuracy = run.accuracy("out_of_domain", found.recorded)["outlines"]
    print(
        f"{found.rule:8} {found.run.condition.method:10} {found.run.draw:4}  {accuracy:8.1%}  "
        + ", ".join(f"{name}={value:.3g}" for name, value in found.run.values.items())
    )
print("tables:", results.home)
