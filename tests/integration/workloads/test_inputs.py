from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_jobs import MakeFolder, WarmHost, make_job
from small_graphs import fall, graph, losses, workload

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.workloads.data import inputs
from driple.workloads.models import registry

pytestmark = [pytest.mark.tf, pytest.mark.integration]

IMAGES = Workload("resnet50", "imagenet", 64, image_size=50)
TEXT = Workload("transformer", "europarl", 64, sequence_length=12)
KINDS = [workload("resnet20", batch_size=4), workload("nmt_small", batch_size=4), workload("ncf", batch_size=4)]


def batches(work: Workload, number: int = 2, *, seed: int = 1, worker: int = 0, data_dir: Path | None = None) -> Any:
    import tensorflow.compat.v1 as v1

    with graph() as whole:
        tensors = inputs.batch_tensors(work, seed=seed, worker=worker, data_dir=str(data_dir) if data_dir else None)
        for name, (shape, kind) in registry.input_shapes(work).items():
            assert tensors[name].shape.as_list() == [work.batch_size, *shape], "static"
            assert tensors[name].dtype.name == kind
        assert len(whole.as_graph_def().SerializeToString()) < 100_000
        with v1.Session() as session:
            return [session.run(tensors) for _ in range(number)]


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("work", KINDS, ids=lambda work: work.dataset)
def test_synthetic_examples_are_new_each_step_and_follow_from_seed_and_worker(work: Workload) -> None:
    first, second = batches(work)
    assert not same(first, second)
    assert same(batches(work, 1)[0], first)
    assert not same(batches(work, 1, seed=2)[0], first)
    assert not same(batches(work, 1, worker=1)[0], first)


def test_images_are_of_few_classes_and_each_class_looks_like_itself() -> None:
    batch = batches(IMAGES, 1)[0]
    assert batch["image"].shape == (64, 50, 50, 3)
    assert batch["image"].dtype == np.float32
    assert 0.3 < batch["image"].std() < 0.6
    assert set(batch["label"]) <= set(range(0, 1000, 100))
    assert batch["label"].dtype == np.int32
    other = batches(IMAGES, 1, seed=2, worker=1)[0]
    near = [np.abs(other["image"] - image).mean(axis=(1, 2, 3)).argmin() for image in batch["image"]]
    assert np.mean(other["label"][near] == batch["label"]) > 0.9, "across seeds and workers"


def test_a_translation_is_a_function_of_its_source() -> None:
    batch = batches(TEXT, 1)[0]
    assert batch["source"].shape == (64, 12)
    assert batch["target"].shape == (64, 13)
    assert (batch["target"][:, 0] == inputs.BEGIN).all()
    words = dict(zip(batch["source"].ravel(), batch["target"][:, 1:].ravel(), strict=True))
    assert all(words[s] == t for s, t in zip(batch["source"].ravel(), batch["target"][:, 1:].ravel(), strict=True))
    assert min(words) >= inputs.FIRST_WORD
    assert max(words) < inputs.FIRST_WORD + inputs.WORDS


def test_ratings_are_about_half_and_half() -> None:
    batch = batches(Workload("ncf", "movielens", 2000), 1)[0]
    assert set(batch["label"]) == {0, 1}
    assert 0.3 < batch["label"].mean() < 0.7
    assert max(batch["user"].max(), batch["item"].max()) < inputs.ACTIVE


def test_input_is_made_on_the_cpu_of_the_worker() -> None:
    import tensorflow.compat.v1 as v1

    device = v1.train.replica_device_setter(worker_device="/job:worker/task:1/device:GPU:0", ps_tasks=1)
    for work in KINDS:
        with graph() as whole, v1.device(device):
            inputs.batch_tensors(work, seed=1, worker=1, data_dir=None)
            places = {op.device for op in whole.get_operations()}
        assert places == {"/job:worker/task:1/device:CPU:0"}


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    """Ten records whose colours are all their label times 20."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for part in (1, 2):
        labels: Any = np.arange(5 * part - 5, 5 * part, dtype=np.uint8)
        (folder / f"data_batch_{part}.bin").write_bytes(b"".join(bytes([n]) + bytes([n * 20]) * 3072 for n in labels))
    return tmp_path


def test_cifar_files(cifar: Path) -> None:
    found = batches(workload("resnet20", image_size=32, batch_size=5), data_dir=cifar)
    assert sorted(np.concatenate([batch["label"] for batch in found])) == list(range(10))
    for batch in found:
        assert np.allclose(batch["image"][:, 7, 9, 2], batch["label"] * 20 / 127.5 - 1)
    small = batches(workload("resnet20", image_size=8, batch_size=3), 1, data_dir=cifar)[0]
    assert np.allclose(small["image"][:, 0, 0, 0], small["label"] * 20 / 127.5 - 1)


def test_cifar_colours_are_planes_of_rows(tmp_path: Path) -> None:
    planes: Any = np.zeros((3, 32, 32), dtype=np.uint8)
    planes[2, 1, 5] = 255
    (tmp_path / "data_batch_1.bin").write_bytes(b"\x03" + planes.tobytes())
    image = batches(workload("resnet20", image_size=32, batch_size=1), 1, data_dir=tmp_path)[0]["image"]
    assert np.argwhere(image[0] > 0).tolist() == [[1, 5, 2]]


def test_training_on_files_brings_the_loss_down(cifar: Path) -> None:
    values = losses(workload("alexnet", dataset="cifar10", image_size=32, batch_size=10), 24, data_dir=str(cifar))
    assert fall(values) > 0.1, values


def test_folders_of_jpeg_files(tmp_path: Path) -> None:
    root = tmp_path / "odd [name]" / "train"
    for label, name in enumerate(("n01", "n02")):
        (root / name).mkdir(parents=True)
        for index in range(3):
            _write_jpeg(root / name / f"{index}.JPEG", 100 * label + 50)
    found = batches(workload("lenet", batch_size=3, image_size=20), data_dir=root.parent)
    assert sorted(np.concatenate([batch["label"] for batch in found])) == [0, 0, 0, 1, 1, 1]
    for batch in found:
        assert np.allclose(batch["image"][:, 3, 3, 1], (100 * batch["label"] + 50) / 127.5 - 1, atol=0.05)


@pytest.mark.parametrize("setting", ["cpu-p1w1-1g", "cpu-p0w1-1g"])
def test_an_image_that_cannot_be_decoded_is_named(
    warm: WarmHost, folder: MakeFolder, tmp_path: Path, setting: str
) -> None:
    data, cut = tmp_path / "data", tmp_path / "data" / "n01" / "2.jpg"
    cut.parent.mkdir(parents=True)
    for file in (cut.with_name("1.jpg"), cut):
        _write_jpeg(file, 50)
    cut.write_bytes(cut.read_bytes()[:100])
    spec = make_job(setting, "lenet", size=20, batch=2)
    job = folder(replace(spec, tasks=tuple(replace(task, data_dir=str(data)) for task in spec.tasks)))
    assert warm.run(job)["worker:0"] == 2
    assert job.last_words("worker:0").startswith(f"{cut}: 100 bytes that cannot be decoded as a JPEG file")


def _write_jpeg(file: Path, grey: int) -> None:
    import tensorflow.compat.v1 as v1

    with graph(), v1.Session() as session:
        file.write_bytes(session.run(v1.io.encode_jpeg(np.full((30, 40, 3), grey, dtype=np.uint8))))


@pytest.mark.parametrize("names", [("a.src", "a.tgt"), ("europarl-v7.fr-en.fr", "europarl-v7.fr-en.en")])
def test_aligned_text(tmp_path: Path, names: tuple[str, str]) -> None:
    source, target = (tmp_path / name for name in names)
    source.write_text("un deux trois\n\nun un un un un un un un un un\n", encoding="utf-8")
    target.write_text("one two three\nlost\none\n", encoding="utf-8")
    found = batches(workload("nmt_small", batch_size=2, sequence_length=6), 1, data_dir=tmp_path)[0]
    short, long = sorted(range(2), key=lambda row: int((found["source"][row] > 0).sum()))
    un, deux, trois, *rest = found["source"][short].tolist()
    assert rest == [0, 0, 0]
    assert len({0, inputs.BEGIN, un, deux, trois}) == 5
    assert found["source"][long].tolist() == [un] * 6
    assert found["target"][short].tolist()[0] == inputs.BEGIN
    assert found["target"][long].tolist()[2:] == [0] * 5
    assert found["target"][long][1] == found["target"][short][1]


@pytest.mark.parametrize(
    ("model", "files", "message"),
    [
        ("resnet20", {}, r"expected CIFAR-10 in its binary version \('data_batch_\*\.bin'\), found no such file"),
        ("resnet20", {"data_batch_1.bin": b""}, "0 bytes, not a multiple"),
        (
            "resnet20",
            {"data_batch_1.bin": b"\x01" * 3000},
            "3000 bytes, not a multiple of a CIFAR-10 record of 3073",
        ),
        ("resnet20", {"data_batch_1.bin": b"\xc8" * 3073}, "label 200 found, CIFAR-10 has 0 to 9"),
        ("lenet", {}, "expected a folder of JPEG files for each of 1 to 1000 classes, found 0 folders"),
        ("lenet", {"n01/readme.txt": b"?"}, "expected JPEG files .*, found none"),
        ("lenet", {"n01/1.jpg": b"GIF89a"}, "1.jpg: not a JPEG file"),
        ("nmt_small", {"a.txt": b"one\n"}, r"expected line-aligned text, NAME\.src beside NAME\.tgt"),
        ("nmt_small", {"a.src": b"one\n"}, "expected its translation in .*a.tgt, which does not exist"),
        ("nmt_small", {"a.src": b"one\ntwo\n", "a.tgt": b"un\n"}, "has 2 lines and .* 1: expected the same number"),
        ("nmt_small", {"a.src": b"one\n\n", "a.tgt": b"\nun\n"}, "no line has text in it and in a.tgt"),
        ("ncf", {"ratings.dat": b"1::1::5::0"}, "movielens cannot be read from files"),
    ],
)
def test_files_that_cannot_be_read_are_refused(
    tmp_path: Path, model: str, files: dict[str, bytes], message: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=message):
        batches(workload(model), data_dir=tmp_path)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere: no such folder"):
        batches(workload("resnet20"), data_dir=tmp_path / "nowhere")


EAGER = """
import sys
import tensorflow as tf
from small_graphs import workload
from driple.workloads.data import inputs

for folder in (sys.argv[1], None):
    @tf.function(autograph=False)
    def step():
        work = workload("resnet20", image_size=32, batch_size=5)
        return inputs.batch_tensors(work, seed=1, worker=0, data_dir=folder)["label"]

    print([int(n) for n in [*step().numpy(), *step().numpy()]])
"""


def test_inside_a_function_of_an_eager_loop_batches_are_new_each_step_too(cifar: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EAGER, str(cifar)],
        capture_output=True,
        text=True,
        timeout=110,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent), "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    files, synthetic = ([int(n) for n in line.strip("[]").split(",")] for line in done.stdout.splitlines())
    assert sorted(files) == list(range(10))
    assert synthetic[:5] != synthetic[5:]
