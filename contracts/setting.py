"""Setting: the machines of a job as a text such as `v100-p1w2-pcie`, and a tolerant reader of the paper's names.

    setting  = device "-p" servers "w" workers "-" network
    device   = letters and digits, starting as in v100, 2080ti, titanrtx, cpu
    network  = "pcie" (all tasks on one machine) or a link rate: 100m, 1g, 40g

The paper writes `V100-P1w2/ho-PCIe`, and its dataset files `1_V100-P1w2ho_PCIe.pkl`. Its ho/he (homogeneous or
heterogeneous topology) is not needed to distinguish its 14 settings, so it is ignored; `PUBLISHED` keeps it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Tuple

from driple.contracts.errors import BadSetting, nearest, shown

GRAMMAR = "<device>-p<servers>w<workers>-<network>, like v100-p1w2-pcie or cpu-p2w2-1g"
PCIE = "pcie"
CPU = "cpu"

# A limit, so that a typing error (p1w20000) does not start 20 000 processes.
MAX_TASKS_OF_A_ROLE = 1024
MAX_TEXT = 100

_DEVICE = re.compile(r"[a-z0-9]*[a-z][a-z0-9]*", re.ASCII)
_RATE = re.compile(r"[1-9][0-9]{0,3}[mg]", re.ASCII)
_TEXT = re.compile(r"(?P<device>[a-z0-9]+)-p(?P<servers>[0-9]+)w(?P<workers>[0-9]+)-(?P<network>[a-z0-9]+)", re.ASCII)
_TOLERANT = re.compile(
    r"""(?:\d+_)?                                           # the running number of a published file
        (?P<device>[a-z0-9](?:[a-z0-9 ]*[a-z0-9])?)
        [-_\s/]* (?<![a-z0-9]) ps? (?P<servers>\d+) [-_\s/]* w (?P<workers>\d+)
        (?:[-_\s/]* (?:homo|hetero|ho|he))?                 # the paper's topology
        [-_\s/]+ (?P<network>pci-?e|\d+\s*(?:m|g)(?:be|bit|bps)?)
        (?:\.pkl)?""",
    re.ASCII | re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, order=True)
class Setting:
    """Device kind, numbers of parameter servers and workers, and network.

    The network `pcie` means one machine; a link rate means several.
    """

    device: str
    """GPU kind in lower case without spaces (`2080ti`), or `cpu`."""
    servers: int
    """Parameter servers; 0 for all-reduce."""
    workers: int
    """Workers, at least 1."""
    network: str
    """`pcie`, or the nominal link rate: `100m`, `1g`, `40g`."""

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.device):
            raise BadSetting(f"device {shown(self.device)}: expected letters and digits such as v100 or 2080ti")
        if not 0 <= self.servers <= MAX_TASKS_OF_A_ROLE:
            raise BadSetting(f"parameter servers: expected 0 to {MAX_TASKS_OF_A_ROLE}")
        if not 1 <= self.workers <= MAX_TASKS_OF_A_ROLE:
            raise BadSetting(f"workers: expected 1 to {MAX_TASKS_OF_A_ROLE}")
        if self.network != PCIE and (not _RATE.fullmatch(self.network) or self.network.endswith("000m")):
            raise BadSetting(f"network {shown(self.network)}: expected pcie or a link rate such as 100m, 1g, 40g")

    def __str__(self) -> str:
        return f"{self.device}-p{self.servers}w{self.workers}-{self.network}"

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Parses the text form, the paper's names and the names of its files.

        Raises:
            BadSetting: with the grammar and the nearest published name.
        """
        # The length is limited, because matching a very long text would take too long.
        stripped = text.strip() if isinstance(text, str) and len(text) <= MAX_TEXT else ""
        match = _TEXT.fullmatch(stripped) or _TOLERANT.fullmatch(stripped)
        if match is None:
            raise BadSetting(_complaint(text))
        network = re.sub(r"[-\s]|be$|bit$|bps$", "", match["network"].lower())
        network = re.sub(r"000m$", "g", network)  # 1000m is 1g: one link, one setting
        try:
            return cls(
                device=match["device"].lower().replace(" ", ""),
                servers=_count(match["servers"]),
                workers=_count(match["workers"]),
                network=network,
            )
        except BadSetting as error:
            raise BadSetting(_complaint(text, f"{error} in ")) from None

    @property
    def one_machine(self) -> bool:
        """Whether all tasks share one machine."""
        return self.network == PCIE

    @property
    def link_mbit(self) -> Optional[int]:
        """The nominal rate of the link between machines in Mbit/s; None on one machine."""
        if self.one_machine:
            return None
        return int(self.network[:-1]) * (1000 if self.network.endswith("g") else 1)

    @property
    def tasks(self) -> Tuple[str, ...]:
        """Every task by name, servers first: `ps:0`, `ps:1`, `worker:0`, ..."""
        servers = tuple(f"ps:{i}" for i in range(self.servers))
        return servers + tuple(f"worker:{i}" for i in range(self.workers))


def _count(digits: str) -> int:
    # Newer Pythons raise ValueError for int() of very many digits.
    return int(digits) if len(digits) < 10 else MAX_TASKS_OF_A_ROLE + 1


def _complaint(text: object, reason: str = "expected ") -> str:
    known = {spelling: entry.setting for entry in PUBLISHED for spelling in (entry.name, str(entry.setting))}
    guess = nearest(str(text)[:80], known, cutoff=0.0) or PUBLISHED[0].name
    return f"{shown(text)} is not a setting: {reason}{GRAMMAR}; the nearest known is {str(known[guess])!r}"


@dataclass(frozen=True)
class Published:
    """A setting whose dataset the Driple authors published."""

    name: str
    """As in the paper."""
    setting: Setting
    topology: str
    """`homo` or `hetero`, as in the paper."""
    machines: int
    """Number of GPU machines."""


def _published(name: str, machines: int) -> Published:
    topology = "homo" if "/ho-" in name else "hetero"
    match = _TOLERANT.fullmatch(name)
    assert match is not None
    setting = Setting(match["device"].lower(), int(match["servers"]), int(match["workers"]), match["network"].lower())
    return Published(name, setting, topology, machines)


# Source: the table "Details of the dataset" in the README of the authors' repository (github gsyang33/Driple), which
# prints the name of number 13 as P5w5 beside a topology of 5 servers and 10 workers; the topology is taken.
PUBLISHED: Tuple[Published, ...] = (
    _published("V100-P1w2/ho-PCIe", 1),
    _published("V100-P2w2/ho-PCIe", 1),
    _published("2080Ti-P1w2/ho-PCIe", 1),
    _published("2080Ti-P1w3/ho-PCIe", 1),
    _published("2080Ti-P2w2/he-PCIe", 1),
    _published("TitanRTX-P2w2/he-PCIe", 1),
    _published("2080Ti-P2w2/he-40G", 2),
    _published("TitanRTX-P2w2/he-40G", 2),
    _published("2080Ti-P4w4/he-40G", 2),
    _published("TitanRTX-P4w4/he-40G", 2),
    _published("V100-P5w5/he-1G", 5),
    _published("2080Ti-P5w5/he-1G", 5),
    _published("V100-P5w10/he-1G", 5),
    _published("2080Ti-P5w10/he-1G", 5),
)
