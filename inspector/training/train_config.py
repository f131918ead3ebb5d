"""The configuration of a training: every key of `--config FILE`, `--set key=value` and the `config` of `train`.

Keys are those of InspectorConfig with its parts `network` and `training`, and those of `data`, `transfer` and
`machine` below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, UnknownName, shown
from driple.inspector.model.model_config import EXECUTIONS, PRESETS, InspectorConfig, changed, one_of, preset
from driple.inspector.network.depth import depends_on_graph

PRESET_NAMES = tuple(PRESETS)
TUNE_PARTS = ("half", "mlp", "gru", "all")
DEVICES = ("cpu", "cuda")
MAX_THREADS = 256
"""Far more than this ends in a crash of torch."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is learned from."""

    add_simulated: bool = False
    """Also train on the simulated rows of the setting. Validation and test rows stay measured."""
    mix_machines: bool = False
    """Also learn from a dataset whose runs had machines that differ by more than 5 %."""


@dataclass(frozen=True, kw_only=True)
class TransferConfig:
    """How a source network is fine-tuned."""

    tune_part: str = "half"
    """The part that is tuned; the rest is frozen."""
    ratio: float = 0.5
    """Share of the layers that is frozen, with `tune_part` half."""
    allow_other_setting: bool = False
    """Allow a source with a different setting, role or device."""
    allow_simulated: bool = False
    """Allow a source of simulated rows for measured ones, or the other way round."""

    def __post_init__(self) -> None:
        one_of("transfer.tune_part", self.tune_part, TUNE_PARTS)
        if not 0 < self.ratio < 1:
            raise BadInput(f"transfer.ratio: expected a share between 0 and 1, got {self.ratio:g}")


@dataclass(frozen=True, kw_only=True)
class MachineConfig:
    """Where a training runs."""

    device: str = "cpu"
    execution: str = "auto"
    """How neighbours are summed: dense matrices or DGL."""
    threads: int | None = None
    """Threads of torch; None: one if the network is small."""

    def __post_init__(self) -> None:
        one_of("machine.device", self.device, DEVICES)
        one_of("machine.execution", self.execution, EXECUTIONS)
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise BadInput(f"machine.threads: expected 1 to {MAX_THREADS}, got {self.threads}")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The effective configuration."""

    model: InspectorConfig
    data: DataConfig = field(default_factory=DataConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)

    def to_yaml(self) -> str:
        """As a file for `--config`."""
        import yaml

        plain = dataclasses.asdict(self)
        return str(yaml.safe_dump({**plain.pop("model"), **plain}, sort_keys=False))


def _kinds() -> dict[str, str]:
    """The type of each key."""
    default = InspectorConfig()
    parts: tuple[tuple[str, Any], ...] = (
        ("", default),
        ("network.", default.network),
        ("training.", default.training),
        ("data.", DataConfig()),
        ("transfer.", TransferConfig()),
        ("machine.", MachineConfig()),
    )
    names = [(f"{at}{one.name}", str(one.type)) for at, part in parts for one in dataclasses.fields(part)]
    return {name: kind for name, kind in names if name not in ("network", "training")}


KINDS = _kinds()


def choices(config: Mapping[str, Any] | str | Path | None, settings: Iterable[str] = ()) -> dict[str, Any]:
    """Values by key, from a mapping or YAML file, then from `key=value` texts.

    Raises:
        BadInput: a file that cannot be read, an unknown key (with the nearest one), or a value of another type.
    """
    given = config if isinstance(config, Mapping) else {} if config is None else _read(Path(config))
    found = {name: _value(name, value) for name, value in flat(given).items()}
    for text in settings:
        name, sign, value = text.partition("=")
        if not sign:
            raise BadInput(f"--set {shown(text)}: expected key=value, such as network.layer=gin")
        found[name.strip()] = _value(name.strip(), value.strip())
    return found


def build(found: Mapping[str, Any], base: InspectorConfig | None = None) -> TrainConfig:
    """The configuration with these values.

    A depth that depends on the graph implies layers that share weights, without jumps, unless these are given.

    Args:
        found: values by key.
        base: what they change; default the preset that they name.

    Raises:
        BadInput: a value that is not allowed, or that contradicts another.
    """
    name = found.get("preset")
    if base is not None and name not in (None, base.preset):
        raise BadInput(
            f"preset {name}: the network to start from is of preset {base.preset}; a transfer keeps its source's "
            "network, so leave it out"
        )
    parts: dict[str, dict[str, Any]] = {}
    for key, value in found.items():
        part, _, leaf = key.rpartition(".")
        parts.setdefault(part, {})[leaf] = value
    network = parts.get("network", {})
    if depends_on_graph(str(network.get("depth", "1"))):
        parts["network"] = {"shared": True, "jump": False, **network}
    model = {**parts.get("", {}), **parts.get("network", {}), **parts.get("training", {})}
    model.pop("preset", None)
    return TrainConfig(
        model=changed(base or preset(name or "driple"), **model),
        data=DataConfig(**parts.get("data", {})),
        transfer=TransferConfig(**parts.get("transfer", {})),
        machine=MachineConfig(**parts.get("machine", {})),
    )


def _read(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        value = yaml.safe_load(text)
        keys = list(_lines_of_keys(yaml.compose(text, Loader=yaml.SafeLoader)))
    except OSError as error:
        raise BadInput(f"--config {path}: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise BadInput(f"--config {path}: not valid YAML") from None
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"--config {path}: expected keys and values, such as network: {{layer: gin}}")
    lines: dict[str, int] = {}
    for name, line in keys:
        if name in lines:
            raise BadInput(f"--config {path}: key {shown(name)} appears twice, on lines {lines[name]} and {line}")
        lines[name] = line
    return value or {}


def _lines_of_keys(node: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Each dotted key of a YAML node, as often as it appears, with its line."""
    for key, item in node.value if node is not None and node.id == "mapping" else ():
        if key.tag != "tag:yaml.org,2002:merge":
            yield f"{prefix}{key.value}", key.start_mark.line + 1
            yield from _lines_of_keys(item, f"{prefix}{key.value}.")


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values of nested mappings by dotted key."""
    found: dict[str, Any] = {}
    for name, item in value.items():
        found |= flat(item, f"{prefix}{name}.") if isinstance(item, Mapping) else {f"{prefix}{name}": item}
    return found


def _value(key: str, value: Any) -> Any:
    """A value of the type of its key. YAML reads `off` as false, `1e-3` as text and `3` as a number."""
    kind = KINDS.get(key)
    if kind is None:
        raise UnknownName("option", key, tuple(KINDS))
    if value is None or (value in ("", "null") and kind.endswith("| None")):
        if kind.endswith("| None"):
            return None
        raise BadInput(f"{key}: expected a value")
    try:
        return _READERS[kind.partition(" ")[0]](value)
    except (TypeError, ValueError, KeyError, OverflowError):
        expected = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}
        raise BadInput(f"{key}: expected {expected[kind.partition(' ')[0]]}, got {shown(value)}") from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        raise TypeError
    return str(value)


def _int(value: Any) -> int:
    if isinstance(value, (bool, float)):
        raise TypeError
    return int(value)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _bool(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    return value if isinstance(value, bool) else words[str(value).lower()]


_READERS = {"str": _text, "int": _int, "float": _float, "bool": _bool}
