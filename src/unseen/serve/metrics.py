"""Counts of what the service did, in the text format of Prometheus."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

Sample = tuple[str, Mapping[str, str], float]
"""What comes after the name of a metric, its labels and its value."""


class Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        place = next((i for i, bound in enumerate(self.bounds) if value <= bound), -1)
        self.counts[place] += 1
        self.total += value

    def samples(self) -> Iterator[Sample]:
        below = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            yield "_bucket", {"le": "+Inf" if bound == float("inf") else f"{bound:g}"}, below
        yield "_sum", {}, self.total
        yield "_count", {}, below


class Metrics:
    """Only the event loop writes here, so that nothing needs a lock."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.images: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()
        self.seconds = Histogram(SECONDS)
        self.batches = Histogram(BATCH_SIZES)

    def text(self, gauges: Sequence["Metric"] = ()) -> str:
        """All metrics, and others whose values are known elsewhere."""
        own = [
            Metric(
                "unseen_requests_total",
                "counter",
                "Requests by path and status.",
                [
                    ("", {"path": path, "status": str(status)}, count)
                    for (path, status), count in sorted(self.requests.items())
                ],
            ),
            Metric(
                "unseen_images_total",
                "counter",
                "Images by outcome.",
                [("", {"outcome": key}, count) for key, count in sorted(self.images.items())],
            ),
            Metric(
                "unseen_predicted_total",
                "counter",
                "Answers by predicted class.",
                [("", {"class": key}, count) for key, count in sorted(self.predicted.items())],
            ),
            Metric(
                "unseen_predict_seconds",
                "histogram",
                "Time from the head of a request for predictions to its answer.",
                list(self.seconds.samples()),
            ),
            Metric(
                "unseen_batch_images",
                "histogram",
                "Images in a batch of the model.",
                list(self.batches.samples()),
            ),
            gauge("unseen_start_time_seconds", "When the service started.", self.started),
            gauge("unseen_resident_memory_bytes", "Memory in use.", resident_bytes()),
        ]
        return "".join(metric.text() for metric in [*own, *gauges])


class Metric:
    def __init__(self, name: str, kind: str, about: str, samples: Sequence[Sample]) -> None:
        self.name, self.kind, self.about, self.samples = name, kind, about, samples

    def text(self) -> str:
        lines = [f"# HELP {self.name} {self.about}", f"# TYPE {self.name} {self.kind}"]
        for suffix, labels, value in self.samples:
            inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            braces = f"{{{inner}}}" if inner else ""
            lines.append(f"{self.name}{suffix}{braces} {_number(value)}")
        return "\n".join(lines) + "\n"


def gauge(name: str, about: str, value: float) -> Metric:
    return Metric(name, "gauge", about, [("", {}, value)])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def resident_bytes() -> int:
    """Memory of this process; on systems without /proc, the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
