"""The service: batches against one by one, onnxruntime against torch, and memory under load."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Clock, Figure, Measurement, alternate, clock, median_ratio
from benchmarks.service.clients import ask_all, make_pictures, multipart
from benchmarks.service.process import Running, ServedModels, make_models, running, running_bare

REQUESTS, CLIENTS = 600, 32
PHOTOGRAPH = 224
WARM_UP, LOAD = 1500, 3000


def one_by_one_over_batches(repeats: int) -> Measurement:
    with _models() as models, ExitStack() as stack:
        alone, together = (
            stack.enter_context(running(models.onnx, "--max-batch", number))
            for number in ("1", "32")
        )
        return median_ratio(alternate(_load(alone), _load(together), repeats))


def bare_over_service(clients: int, *options: str) -> Callable[[int], Measurement]:
    """The seconds that a bare FastAPI file takes over those of the service."""

    def measure(repeats: int) -> Measurement:
        with _models() as models, ExitStack() as stack:
            bare = stack.enter_context(running_bare(models.onnx))
            ours = stack.enter_context(running(models.onnx, *options))
            seconds: dict[str, list[float]] = {"bare": [], "service": []}
            clocks = [
                _load(each, clients, PHOTOGRAPH, seconds[name])
                for name, each in (("bare", bare), ("service", ours))
            ]
            pairs = alternate(*clocks, repeats)
        remark = "; ".join(
            f"{name}: p50 {1000 * percentile(times, 50):.1f} ms, p99 "
            f"{1000 * percentile(times, 99):.1f} ms"
            for name, times in seconds.items()
        )
        return median_ratio(pairs, remark)

    return measure


def percentile(values: Sequence[float], share: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * share // 100)]


def torch_over_onnx(repeats: int) -> Measurement:
    with _models() as models, ExitStack() as stack:
        torch, onnx = (stack.enter_context(running(model)) for model in models)
        return median_ratio(alternate(_load(torch), _load(onnx), repeats))


def memory_growth(repeats: int) -> Measurement:
    with _models() as models, running(models.onnx) as service:
        body = multipart(make_pictures(1)[0])
        ask_all(service.port, [body] * WARM_UP, CLIENTS)
        before = service.resident_bytes()
        lost = sum(
            LOAD - ask_all(service.port, [body] * LOAD, CLIENTS).answered for _ in range(repeats)
        )
        after = service.resident_bytes()
    remark = f"{before / 1e6:.0f} MB and {after / 1e6:.0f} MB; {lost} answers lost"
    return Measurement(after / before, remark=remark, sound=lost == 0)


@contextmanager
def _models() -> Iterator[ServedModels]:
    with TemporaryDirectory(prefix="unseen-bench-") as name:
        yield make_models(Path(name))


def _load(
    service: Running, clients: int = CLIENTS, side: int = 32, seconds: list[float] | None = None
) -> Clock:
    """`seconds` gets the time of each request."""
    bodies = [multipart(data) for data in make_pictures(50, side)]
    requests = bodies * (REQUESTS // 50 if side == 32 else 4)

    def work() -> None:
        crowd = ask_all(service.port, requests, clients)
        if crowd.answered != len(requests):
            raise RuntimeError(f"{len(requests) - crowd.answered} answers were lost")
        if seconds is not None:
            seconds.extend(crowd.seconds)

    return clock(work)


FIGURES = [
    Figure(
        f"a bare FastAPI file / the service, {clients} client{'s' * (clients > 1)}, {name}",
        goal,
        f"requests of one image of {PHOTOGRAPH} px, digits' network in onnxruntime",
        repeats=7,
        measure=bare_over_service(clients, *options),
    )
    for name, goal, options in (
        ("everything on", ">= 0.8", ()),
        ("drift off", ">= 0.95", ("--window", "0")),
    )
    for clients in (1, 8, 32)
]
FIGURES += [
    Figure(
        "serving one by one / in batches",
        "> 1.0",
        f"{REQUESTS} requests of one image from {CLIENTS} clients, digits' network in onnxruntime, "
        "--max-batch 1 and 32",
        repeats=7,
        measure=one_by_one_over_batches,
    ),
    Figure(
        "serving with torch / with onnxruntime",
        "> 1.0",
        f"{REQUESTS} requests of one image from {CLIENTS} clients, digits' network",
        repeats=7,
        measure=torch_over_onnx,
    ),
    Figure(
        "memory of the service after load / after warm-up",
        "<= 1.05",
        f"{LOAD} requests a repeat from {CLIENTS} clients, after {WARM_UP}",
        repeats=2,
        measure=memory_growth,
    ),
]
