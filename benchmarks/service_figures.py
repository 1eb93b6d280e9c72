"""The service: batches against one by one, onnxruntime against torch, and memory under load."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Clock, Figure, Measurement, alternate, clock, median_ratio
from benchmarks.service.clients import ask_all, make_pictures, multipart
from benchmarks.service.process import Running, ServedModels, make_models, running

REQUESTS, CLIENTS = 600, 32
WARM_UP, LOAD = 1500, 3000


def one_by_one_over_batches(repeats: int) -> Measurement:
    with _models() as models, ExitStack() as stack:
        alone, together = (
            stack.enter_context(running(models.onnx, "--max-batch", number))
            for number in ("1", "32")
        )
        return median_ratio(alternate(_load(alone), _load(together), repeats))


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


def _load(service: Running) -> Clock:
    bodies = [multipart(data) for data in make_pictures(REQUESTS)]

    def work() -> None:
        answered = ask_all(service.port, bodies, CLIENTS).answered
        if answered != REQUESTS:
            raise RuntimeError(f"{REQUESTS - answered} of {REQUESTS} answers were lost")

    return clock(work)


FIGURES = [
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
