"""The interfaces of transports and of collectives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch


@dataclass(frozen=True)
class Link:
    """This worker's end of the data network."""

    host: str
    """Its address."""
    interface: str
    start_s: float = 60.0
    """How long the workers may take to find each other."""


class Pending(Protocol):
    """A message on its way."""

    def wait(self) -> object:
        """Blocks until it was sent or has arrived. Raises RuntimeError if a peer is lost."""


class Messages(ABC):
    """Tagged messages between the workers of a job. Tensors are dense, on the CPU, and belong to it until `wait`."""

    name: str
    """The backend that it is."""
    rank: int
    workers: int
    most_tag: int = (1 << 30) - 1
    """Tags are from 0 to this."""
    versions: Mapping[str, str] = MappingProxyType({})
    """Of libraries besides the framework."""

    @abstractmethod
    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Pending: ...

    @abstractmethod
    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Pending:
        """Receives into `tensor`. Messages of a pair of workers are told apart by their tags alone."""

    @abstractmethod
    def ring(self, flat: torch.Tensor) -> None:
        """Sums `flat` over all workers in place, by the ring of the transport's own library."""


class Collective(ABC):
    """Sums a buffer over all workers. All of them call it in the same order with equal sizes."""

    name: str
    """The topology that it has."""

    @abstractmethod
    def all_reduce(self, flat: torch.Tensor) -> None:
        """Sums in place; returns when the sum is complete."""
