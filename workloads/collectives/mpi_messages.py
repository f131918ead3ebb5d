"""Messages of MPI, through mpi4py.

Nothing starts the tasks of a job as MPI processes, so worker 0 serves what a process manager would tell them
(process_manager.py). MPICH and its derivatives ask for that; Open MPI does not.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from driple.contracts.errors import RunFailed
from driple.contracts.strategy import MPI
from driple.workloads.collectives import process_manager
from driple.workloads.collectives.base import Link, Messages, Pending
from driple.workloads.collectives.mpi_variables import set_variables


class MpiMessages(Messages):
    """All workers as one MPI world, over TCP on the interface of the process group."""

    name = MPI

    def __init__(self, link: Link) -> None:
        """Starts MPI. Needs the process group, by which worker 0 says where its process manager is."""
        self.rank = dist.get_rank()
        self.workers = dist.get_world_size()
        where = [""]
        if self.rank == 0:
            where[0], self._process_manager = process_manager.start(link.host, self.workers, link.start_s)
        dist.broadcast_object_list(where, src=0)
        set_variables(where[0], self.rank, link.interface)
        try:
            from mpi4py import MPI as mpi  # starts MPI
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise RunFailed(f"backend mpi: mpi4py: {reason}; install driple[mpi] on this host") from None

        library = " ".join(mpi.Get_library_version().split()[:3]).replace("Version: ", "")
        if mpi.COMM_WORLD.size != self.workers:
            raise RunFailed(f"backend mpi needs MPICH, and mpi4py found {library}; install driple[mpi] on this host")
        self.versions = {"mpi": library}
        self._world: Any = mpi.COMM_WORLD
        self._in_place = mpi.IN_PLACE
        most_tag = self._world.Get_attr(mpi.TAG_UB)
        assert isinstance(most_tag, int)  # MPI always has it
        self.most_tag = most_tag

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Pending:
        return _Request(self._world.Isend(tensor.numpy(), to, tag))

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Pending:
        return _Request(self._world.Irecv(tensor.numpy(), source, tag))

    def ring(self, flat: torch.Tensor) -> None:
        self._world.Allreduce(self._in_place, flat.numpy())


class _Request:
    def __init__(self, request: Any) -> None:
        self._request = request

    def wait(self) -> None:
        self._request.Wait()
