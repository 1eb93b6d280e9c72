"""The three questions that every run answers, and how they are called. No torch."""

from typing import Literal, NamedTuple

from unseen.settings.metrics import METRICS, Metric

View = Literal["out_of_domain", "in_domain", "known_domain"]


class ViewTexts(NamedTuple):
    title: str
    meaning: str
    """What is measured, to follow the title."""
    table_note: str
    """What a number means in a table whose columns are the domains left out of training."""

    def table_title(self, metric: Metric) -> str:
        return f"{self.title.replace(' ', '-').capitalize()} {METRICS[metric]}"


_OTHER_DOMAINS = "mean over these domains. The column names the domain left out of training."

VIEWS: dict[View, ViewTexts] = {
    "out_of_domain": ViewTexts(
        "out of domain",
        "images of a domain that training never saw",
        "Images of the unseen domain, which names the column.",
    ),
    "in_domain": ViewTexts(
        "in domain",
        "held-out images of the training domains",
        "Held-out images of the training domains; the model is not told the domain; "
        f"{_OTHER_DOMAINS}",
    ),
    "known_domain": ViewTexts(
        "known domain",
        "the same images, with the domain given to the model",
        f"Held-out images of the training domains; the model is told the domain; {_OTHER_DOMAINS}",
    ),
}
"""In the order of tables."""
