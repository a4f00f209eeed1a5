"""A log of your own from a dataframe: a dataset, a policy, a verdict and recommendations in your own ids.

Run: python examples/custom_log.py
"""

import numpy as np

import moac

SEASONS = np.array(["spring", "summer", "autumn", "winter"], object)


def newsletter(readers: int = 300, offers: int = 12, weeks: int = 20, seed: int = 0) -> dict[str, np.ndarray]:
    """Every week each reader gets an offer, in some seasons mostly the popular ones. A DataFrame does as well."""
    rng = np.random.default_rng(seed)
    patience, appeal = rng.standard_normal(readers), rng.standard_normal(offers)
    reader, week = (grid.ravel() for grid in np.meshgrid(np.arange(readers), np.arange(weeks), indexing="ij"))
    chance = np.exp(appeal * (1 + (week % 4)[:, None] / 2))
    chance /= chance.sum(axis=1, keepdims=True)
    offer = (rng.random((len(reader), 1)) > chance.cumsum(axis=1)[:, :-1]).sum(axis=1)
    order = rng.random(len(reader)) < 0.3 / (1 + np.exp(-patience[reader] - appeal[offer]))
    return {
        "reader": np.array([f"reader {k}" for k in reader], object),
        "offer": np.array([f"offer {chr(65 + k)}" for k in offer], object),
        "week": week,
        "season": SEASONS[week % 4],
        "order": order.astype(int),
        "minutes": rng.exponential(2 + 3 * order),
        "complaint": (rng.random(len(reader)) < 0.02).astype(int),
        "chance": chance[np.arange(len(reader)), offer],  # leave it out where it is not known
    }


def main(iterations: int = 200) -> moac.logs.LoggedDataset:
    """Build the dataset, train, evaluate, recommend. So few readers show nothing, and the verdict says why."""
    dataset = moac.logs.build(
        newsletter(), user="reader", item="offer", time="week", signals="order,minutes,-complaint",
        context="season", propensity="chance", name="newsletter",
    )  # fmt: skip
    print(dataset)
    run = moac.train(dataset, num_iterations=iterations, num_evaluations=2, behaviour_pull=0.3)
    evaluation = run.evaluate(split="validation")
    for line in evaluation.lines("MOAC"):
        print(f"{line.label:16} {line.relative:+.1%} {line.outcome}")
    verdict = evaluation.report.policies["MOAC"].verdict
    print(f"verdict: {verdict.level}", *(f"  - {reason.text}" for reason in verdict.reasons), sep="\n")
    print(
        run.policy.recommend("reader 5", ["summer"], ["offer A", "offer C"], k=3, responses=[[1, 5.0, 0], [0, 1.0, 0]])
    )
    return dataset


if __name__ == "__main__":
    main()
