"""`unseen serve` as a process: under load, under attack, at its end, and what it loads."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.service.check import difference, expected
from benchmarks.service.clients import Crowd, ask_all, make_pictures, multipart
from benchmarks.service.mutations import attack_all, failures, mutations, post
from benchmarks.service.process import running
from tests.commands import commands_in
from tests.serve.models import CLASSES
from tests.serve.service.asking import metric

WITHOUT_TRAINING = """
import atexit, sys
class Missing:
    names = "torch torchvision timm lightning_fabric safetensors huggingface_hub".split()
    def find_spec(self, name, *_):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
heavy = (*Missing.names, "sklearn", "typst", "fastapi")
atexit.register(lambda: print([name for name in heavy if name in sys.modules]))
from unseen.cli.main import main
main(sys.argv[1:])
"""


def test_many_clients_get_what_predict_says(onnx_model: Path) -> None:
    pictures = make_pictures(20)
    with running(onnx_model, "--queue", "16", "--max-images", "8") as service:
        crowd = ask_all(service.port, [multipart(pictures[n % 20]) for n in range(300)], 32)
        metrics = service.read("/metrics").splitlines()
        drift = json.loads(service.read("/drift"))
    assert crowd.answered == 300
    assert difference(crowd, expected(onnx_model, pictures), list(CLASSES)) <= 1e-5
    assert metric(metrics, 'unseen_images_total{outcome="answered"}') == 300
    assert metric(metrics, "unseen_waiting_images") == 0
    assert drift["images"] == 300


def test_nothing_that_is_sent_breaks_it(onnx_model: Path) -> None:
    pictures = make_pictures(5)
    good = [multipart(pictures[0])] * 20
    with running(onnx_model, "--read-seconds", "1", "--max-bytes", "1000000") as service:
        assert ask_all(service.port, good, 4).answered == 20
        before = service.resident_bytes()
        outcomes = attack_all(service.port, mutations(pictures, 108))
        assert failures(outcomes) == []
        statuses = {each.status for each in outcomes}
        assert {400, 408, 413, 415, 422} <= statuses
        slow = {each.status for each in outcomes if each.kind.startswith("slow")}
        assert slow <= {0, 400, 408}
        assert json.loads(service.read("/health"))["status"] == "ok"
        assert ask_all(service.port, good, 4).answered == 20
        assert service.resident_bytes() < before + 100e6
        metrics = service.read("/metrics").splitlines()
        assert metric(metrics, "unseen_waiting_images") == 0


def test_a_signal_under_load_loses_nothing_that_was_accepted(onnx_model: Path) -> None:
    with running(onnx_model) as service:
        crowd = Crowd(service.port, [multipart(*make_pictures(2))] * 100_000, 8)
        crowd.start()
        while crowd.answered < 60:
            time.sleep(0.01)
        service.process.send_signal(signal.SIGTERM)
        crowd.join()
        assert service.process.wait() == 0
        assert service.process.stderr is not None
        said = service.process.stderr.read()
    found = re.search(r"Ended; (\d+) images answered", said)
    assert found, said
    assert int(found[1]) == 2 * crowd.answered


def test_slow_senders_hold_no_place_that_others_need(onnx_model: Path) -> None:
    with running(onnx_model) as service:
        senders = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(540)]
        for place, sender in enumerate(senders):
            begun = post(b"x", length=9000) if place % 2 else b"POST /predict HTTP/1.1\r\n"
            with contextlib.suppress(OSError):  # it has lost its place
                sender.sendall(begun)
        assert json.loads(service.read("/health"))["status"] == "ok"
        assert ask_all(service.port, [multipart(*make_pictures(1))] * 20, 4).answered == 20
        for sender in senders:
            sender.close()


def test_a_half_closed_connection_gets_its_answer(onnx_model: Path) -> None:
    whole = post(multipart(*make_pictures(1)))
    with running(onnx_model) as service:
        for sent, answers in ((whole, 1), (whole + whole, 2), (whole[:-9], 0)):
            with socket.create_connection(("127.0.0.1", service.port)) as client:
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
                received = b"".join(iter(lambda: client.recv(65536), b""))
            assert received.startswith(b"HTTP/1.1 200" if answers else b"")
            assert received.count(b"HTTP/1.1 200") == answers


def without_training(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TRAINING, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_onnx_file_is_used_where_torch_cannot_be_imported(
    onnx_model: Path, tmp_path: Path
) -> None:
    for number, data in enumerate(make_pictures(12)):
        (tmp_path / f"{number}.png").write_bytes(data)
    predicted = without_training("predict", str(onnx_model), str(tmp_path), "--format", "csv")
    assert predicted.returncode == 0, predicted.stderr
    assert predicted.stdout.count(".png") == 12
    forecast = without_training("forecast", str(onnx_model), str(tmp_path))
    assert forecast.returncode == 0, forecast.stderr
    assert "of the predictions on these 12 images are right" in " ".join(forecast.stdout.split())
    (tmp_path / "config.json").write_text("{}")
    for words in (["train", "digits/dmg"], ["predict", str(tmp_path), str(tmp_path)]):
        answer = without_training(*words)
        assert answer.returncode == 2
        assert "pip install 'unseen[train]'" in answer.stderr


def test_an_onnx_file_is_served_where_torch_cannot_be_imported(onnx_model: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TRAINING, "serve", str(onnx_model), "--port", "0"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    assert process.stderr is not None
    port = int(process.stderr.readline().rpartition(":")[2])
    crowd = ask_all(port, [multipart(*make_pictures(60))], 1)
    process.terminate()
    out, err = process.communicate()
    assert crowd.answered == 1
    assert process.returncode == 0, err
    assert out == "[]\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-images", "300"], "make the queue at least as long"),
        (["--max-pixels", "0"], "above 0"),
        (["--window", "-1"], "--window: should be 0 or more"),
        (["--port", "99999"], "choose another --port"),
        (["--host", "not.an.address.invalid"], "choose another --port or --host"),
    ],
)
def test_mistakes_are_found_at_once(onnx_model, options, says, capsys, monkeypatch) -> None:
    answer = commands_in(onnx_model.parent, capsys, monkeypatch)("serve", str(onnx_model), *options)
    assert answer.code == 2
    assert says in answer.err
