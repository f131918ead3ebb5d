"""Variables from which MPICH learns its process manager and its network."""

from __future__ import annotations

import os


def set_variables(process_manager: str, rank: int, interface: str) -> None:
    """For one process of a world that is served by process_manager.py, over TCP on an interface."""
    os.environ |= {
        **{"PMI_PORT": process_manager, "PMI_ID": str(rank)},
        # MPICH has one of these libraries, or both. UCX would stripe large messages over all interfaces.
        **{"UCX_TLS": "tcp", "UCX_NET_DEVICES": interface},
        **{"FI_PROVIDER": "tcp", "FI_TCP_IFACE": interface},
        "MPIR_CVAR_NOLOCAL": "1",  # shared memory is no network, and hosts of a lab look like one machine
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring",
        "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
    }
    # On loopback the UCX of MPICH 5.0.2 looks for a route to a name that is no address, finds none, and ends the
    # process with SIGTERM. A host whose MPICH has no libfabric can name its library itself.
    os.environ.setdefault("MPIR_CVAR_CH4_NETMOD", "ofi")
