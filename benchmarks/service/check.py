"""python -m benchmarks.service.check: a service under load and under attack, in full numbers."""

import argparse
import re
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import unseen
from benchmarks.service.clients import Crowd, ask_all, make_pictures, multipart
from benchmarks.service.mutations import attack_all, failures, mutations
from benchmarks.service.process import Running, make_models, running
from unseen.data.images import open_image


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.check")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--mutations", type=int, default=1_000)
    parser.add_argument("--clients", type=int, default=32)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unseen-bench-") as name:
        models = make_models(Path(name))
        for kind, model in (("onnx", models.onnx), ("torch", models.folder)):
            with running(model) as service:
                check_load(kind, service, model, chosen.requests, chosen.clients)
        with running(models.onnx, "--read-seconds", "1") as service:
            check_attack(service, chosen.mutations)
        with running(models.onnx) as service:
            check_end(service, chosen.clients)


def expected(model: Path, pictures: list[bytes]) -> np.ndarray:
    """What `predict` says about these files."""
    opened = [open_image(data, "a picture") for data in pictures]
    return unseen.load(model, "cpu").predict(opened)


def difference(crowd: Crowd, right: np.ndarray, classes: list[str]) -> float:
    """The largest one between the crowd's answers, one image each, and the right ones."""
    largest = 0.0
    for number, answer in enumerate(crowd.answers):
        assert answer is not None
        shares = answer.images[0]["probabilities"]
        found = np.array([shares[name] for name in classes])
        largest = max(largest, float(np.abs(found - right[number % len(right)]).max()))
    return largest


def check_load(kind: str, service: Running, model: Path, requests: int, clients: int) -> None:
    pictures = make_pictures(200)
    bodies = [multipart(pictures[number % 200]) for number in range(requests)]
    ask_all(service.port, bodies[: max(1, requests // 10)], clients)  # warm-up
    before, start = service.resident_bytes(), time.perf_counter()
    crowd = ask_all(service.port, bodies, clients)
    seconds, after = time.perf_counter() - start, service.resident_bytes()
    classes = unseen.load(model, "cpu").classes
    apart = difference(crowd, expected(model, pictures), classes)
    batches = re.search(r"^unseen_batch_images_count (\d+)", service.read("/metrics"), re.M)
    print(
        f"{kind}: {crowd.answered} of {requests} answered, {crowd.refused} times asked to come "
        f"back; largest difference from predict {apart:.1e}; {requests / seconds:.0f} requests a "
        f"second from {clients} clients; {batches[1] if batches else '?'} batches; memory "
        f"{before / 1e6:.1f} MB after warm-up, {after / 1e6:.1f} MB at the end",
        flush=True,
    )
    assert crowd.answered == requests
    assert apart <= 1e-5


def check_attack(service: Running, number: int) -> None:
    pictures = make_pictures(20)
    good = [multipart(pictures[0])] * 50
    ask_all(service.port, good)
    wanted = list(mutations(pictures, number))
    outcomes, memory = [], []
    for first, last in ((0, number // 4), (number // 4, number // 2), (number // 2, number)):
        outcomes += attack_all(service.port, iter(wanted[first:last]))
        memory.append(f"{service.resident_bytes() / 1e6:.1f}")
    bad = failures(outcomes)
    statuses = dict(sorted(Counter(each.status for each in outcomes).items()))
    print(
        f"attack: {number} requests, by status {statuses} (0: closed), {len(bad)} failures; "
        f"memory after a quarter, half and all of it: {', '.join(memory)} MB; "
        f"health: {service.read('/health')}",
        flush=True,
    )
    assert not bad, bad[:3]
    assert ask_all(service.port, good).answered == len(good)


def check_end(service: Running, clients: int) -> None:
    """SIGTERM while all clients wait for answers."""
    crowd = Crowd(service.port, [multipart(*make_pictures(2))] * 100_000, clients)
    crowd.start()
    while crowd.answered < 500:
        time.sleep(0.01)
    service.process.send_signal(signal.SIGTERM)
    crowd.join()
    code = service.process.wait()
    assert service.process.stderr is not None
    said = service.process.stderr.read()
    found = re.search(r"Ended; (\d+) images", said)
    print(f"end: exit code {code}; the service answered {found and found[1]} images, clients "
          f"received {2 * crowd.answered}", flush=True)  # fmt: skip
    assert code == 0
    assert found
    assert int(found[1]) == 2 * crowd.answered


if __name__ == "__main__":
    main()
