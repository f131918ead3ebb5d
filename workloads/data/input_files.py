"""Batches from the user's files, read by tf.data. The graph holds only file names and patterns.

    cifar10   data_batch_*.bin, the binary version: records of a label byte and 3 x 32 x 32 colour bytes
    imagenet  a folder for each class, with JPEG files in it; classes are numbered in the order of their names
    europarl  line-aligned plain text: NAME.src beside NAME.tgt, or europarl-v7.xx-en.xx beside europarl-v7.xx-en.en

The files may be in the folder of the archive (cifar-10-batches-bin, train). Words become tokens by their hash modulo
the vocabulary size, so no vocabulary is needed. Files are checked before anything is built. Each worker shuffles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from driple.contracts.errors import BadInput, shown
from driple.contracts.run_spec import Workload
from driple.workloads.data.inputs import BEGIN, FIRST_WORD
from driple.workloads.models.registry import dataset_of, size_of

CIFAR_SIDE = 32
CIFAR_RECORD = 1 + 3 * CIFAR_SIDE**2
_JPEG_NAMES = ("*.JPEG", "*.jpeg", "*.jpg", "*.JPG")
_JPEG_START = b"\xff\xd8"
_SHUFFLED_EXAMPLES = 10_000
_SHUFFLED_NAMES = 2_000_000
"""More than ImageNet has: names are sorted by class, so all must be shuffled."""


def batch_tensors(workload: Workload, *, seed: int, worker: int, data_dir: str) -> dict[str, Any]:
    """As `inputs.batch_tensors`, from files. Raises BadInput for files that are not in the format above."""
    readers = {"cifar10": _cifar, "imagenet": _imagenet, "europarl": _europarl}
    if workload.dataset not in readers:
        raise BadInput(f"{workload.dataset} cannot be read from files (only {', '.join(readers)}); leave out data_dir")
    folder = Path(data_dir)
    if not folder.is_dir():
        raise BadInput(f"data_dir {data_dir}: no such folder")
    number = int(np.random.SeedSequence([seed, worker]).generate_state(1)[0] >> 1)
    return _next(lambda: readers[workload.dataset](folder, workload, number).prefetch(1))


def _next(make: Callable[[], Any]) -> dict[str, Any]:
    """The next batch each time it is evaluated, in a TF1 graph or inside a tf.function."""
    v1 = tf.compat.v1
    if v1.executing_eagerly_outside_functions():
        with tf.init_scope():  # outside the function: the iterator has to outlive a step
            iterator = iter(make())
        v1.add_to_collection("driple_input", iterator)  # else it is deleted with its last Python reference
    else:
        iterator = v1.data.make_one_shot_iterator(make())
    batch: dict[str, Any] = iterator.get_next()
    return batch


def _cifar(folder: Path, workload: Workload, seed: int) -> Any:
    files = _found(folder, "cifar-10-batches-bin", "data_batch_*.bin", "CIFAR-10 in its binary version")
    for file in files:
        size = file.stat().st_size
        if size == 0 or size % CIFAR_RECORD:
            raise BadInput(f"{file}: {size} bytes, not a multiple of a CIFAR-10 record of {CIFAR_RECORD} bytes")
        labels = np.memmap(file, np.uint8, "r").reshape(-1, CIFAR_RECORD)[:, 0]
        if labels.max() >= dataset_of(workload).classes:
            raise BadInput(f"{file}: label {labels.max()} found, CIFAR-10 has 0 to 9")
    side = size_of(workload)

    def decode(records: Any) -> dict[str, Any]:
        table = tf.reshape(tf.io.decode_raw(records, tf.uint8), [workload.batch_size, CIFAR_RECORD])
        pixels = tf.reshape(table[:, 1:], [-1, 3, CIFAR_SIDE, CIFAR_SIDE])
        image = _centred(tf.transpose(pixels, [0, 2, 3, 1]))
        image = image if side == CIFAR_SIDE else tf.image.resize(image, [side, side])
        return {"image": image, "label": tf.cast(table[:, 0], tf.int32)}

    records = tf.data.FixedLengthRecordDataset([str(file) for file in files], CIFAR_RECORD)
    return _endless(records, _SHUFFLED_EXAMPLES, seed).batch(workload.batch_size, drop_remainder=True).map(decode)


def check_jpegs(data_dir: str) -> None:
    """Decodes the images of a folder, small (truncated?) files first. Raises BadInput with one that is broken."""
    v1 = tf.compat.v1
    files = [file for name in _JPEG_NAMES for file in _image_root(Path(data_dir)).glob(f"*/{name}")]
    with v1.Graph().as_default(), v1.Session(config=v1.ConfigProto(device_count={"GPU": 0})) as session:
        content = v1.placeholder(tf.string)
        decoded = tf.shape(tf.io.decode_jpeg(content, channels=3))
        for file in sorted(files, key=lambda file: file.stat().st_size):
            try:
                session.run(decoded, {content: file.read_bytes()})
            except tf.errors.InvalidArgumentError:
                found = f"{file.stat().st_size} bytes that cannot be decoded as a JPEG file"
                raise BadInput(f"{file}: {found}; repair or remove it") from None


def _image_root(folder: Path) -> Path:
    return folder / "train" if (folder / "train").is_dir() else folder


def _imagenet(folder: Path, workload: Workload, seed: int) -> Any:
    root = _image_root(folder)
    classes = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    most = dataset_of(workload).classes
    if not classes or len(classes) > most:
        found = f"found {len(classes)} folders"
        raise BadInput(f"data_dir {root}: expected a folder of JPEG files for each of 1 to {most} classes, {found}")
    used = {_first_jpeg(root / name) for name in classes}
    side = size_of(workload)
    escaped = re.sub(r"([\\*?\[\]])", r"\\\1", str(root))

    def decode(name: Any) -> dict[str, Any]:
        own = tf.strings.split([name], "/").values[-2]
        label = tf.argmax(tf.cast(tf.equal(classes, own), tf.int32), output_type=tf.int32)
        image = tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(name), channels=3), [side, side])
        return {"image": _centred(image), "label": label}

    patterns = tf.data.Dataset.from_tensor_slices([f"{escaped}/*/{pattern}" for pattern in sorted(used)])
    names = patterns.flat_map(lambda pattern: tf.data.Dataset.from_tensor_slices(tf.io.matching_files(pattern)))
    images = _endless(names, _SHUFFLED_NAMES, seed).map(decode, num_parallel_calls=2)
    return images.batch(workload.batch_size, drop_remainder=True)


def _first_jpeg(folder: Path) -> str:
    """The file name pattern of a class; checks its first file."""
    for pattern in _JPEG_NAMES:
        for file in folder.glob(pattern):
            with file.open("rb") as stream:
                if stream.read(2) != _JPEG_START:
                    raise BadInput(f"{file}: not a JPEG file")
            return pattern
    raise BadInput(f"{folder}: expected JPEG files ({', '.join(_JPEG_NAMES)}), found none")


def _europarl(folder: Path, workload: Workload, seed: int) -> Any:
    pairs = list(_text_pairs(folder))
    if not pairs:
        expected = "NAME.src beside NAME.tgt, or europarl-v7.xx-en.xx beside europarl-v7.xx-en.en"
        raise BadInput(f"data_dir {folder}: expected line-aligned text, {expected}, found none")
    for source, target in pairs:
        _check_aligned(source, target)
    length, words = size_of(workload), dataset_of(workload).classes - FIRST_WORD

    def tokens(line: Any) -> Any:
        found = tf.strings.split([line]).values[:length]
        ids = FIRST_WORD + tf.cast(tf.strings.to_hash_bucket_fast(found, words), tf.int32)
        return tf.ensure_shape(tf.pad(ids, [[0, length - tf.shape(ids)[0]]]), [length])

    def decode(source: Any, target: Any) -> dict[str, Any]:
        return {"source": tokens(source), "target": tf.concat([[BEGIN], tokens(target)], axis=0)}

    def filled(source: Any, target: Any) -> Any:
        return tf.logical_and(*(tf.strings.length(tf.strings.strip(line)) > 0 for line in (source, target)))

    lines = [tf.data.TextLineDataset([str(pair[side]) for pair in pairs]) for side in (0, 1)]
    examples = _endless(tf.data.Dataset.zip(tuple(lines)).filter(filled), _SHUFFLED_EXAMPLES, seed).map(decode)
    return examples.batch(workload.batch_size, drop_remainder=True)


def _text_pairs(folder: Path) -> Iterator[tuple[Path, Path]]:
    for source in sorted(folder.glob("*.src")):
        yield source, source.with_suffix(".tgt")
    for source in sorted(folder.glob("europarl-v*.*-*.*")):
        first, _, second = source.suffixes[-2][1:].partition("-")
        if source.suffix == f".{first}":
            yield source, source.with_suffix(f".{second}")


def _check_aligned(source: Path, target: Path) -> None:
    if not target.is_file():
        raise BadInput(f"{source}: expected its translation in {target}, which does not exist")
    lines = [_lines(source), _lines(target)]
    if lines[0] != lines[1]:
        raise BadInput(f"{source} has {lines[0]} lines and {target} {lines[1]}: expected the same number")
    with source.open("rb") as left, target.open("rb") as right:
        filled = any(one.strip() and other.strip() for one, other in zip(left, right, strict=True))
    if not filled:
        raise BadInput(f"{source}: no line has text in it and in {target.name}")


def _lines(file: Path) -> int:
    with file.open("rb") as stream:
        return sum(1 for _ in stream)


def _found(folder: Path, inner: str, pattern: str, what: str) -> list[Path]:
    for place in (folder, folder / inner):
        files = sorted(place.glob(pattern))
        if files:
            return files
    raise BadInput(f"data_dir {folder}: expected {what} ({shown(pattern)}), found no such file")


def _endless(examples: Any, buffer: int, seed: int) -> Any:
    return examples.shuffle(buffer, seed=seed).repeat()


def _centred(image: Any) -> Any:
    """Scales bytes to -1 to 1."""
    return tf.cast(image, tf.float32) / 127.5 - 1.0
