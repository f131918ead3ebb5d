"""The public scripts of the traffic study beside ours, on the same captures (benchmarks/traffic.py --study).

The scripts (github.com/tum-lkn/dml-network-traffic-analysis, analysis/) run as they are, with the tshark and the Python
of the machine. They need pandas 1, and times of central European summer. The captures are those of a real job: the
packet files of a run, written as tcpdump of the study would have (sent packets alone, 100 bytes of each).

    python benchmarks/study_scripts.py ours FOLDER OUT.json
"""

from __future__ import annotations

import datetime
import json
import math
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

JOB = "torch-lenet-momentum-4-gloo-normal-ring"
START_S = 1_690_000_000
"""Of the captures: in summer, the only time that the scripts read everywhere."""
_SNAP = 100
_MS, _NS = 0.001, 1_000_000_000
_TIME = "%b %d, %Y %H:%M:%S"


class Round(NamedTuple):
    """One comparison."""

    parsing_s: float
    aggregating_s: float
    ours_s: float
    """CPU time of the whole command, with the start of Python and the imports."""
    inside_s: float
    """CPU time of the work alone."""
    verdicts: dict[str, str]
    """By kind of result: `equal`, or what is wrong."""

    @property
    def theirs_s(self) -> float:
        return self.parsing_s + self.aggregating_s


def capture_job(folder: Path, steps: int) -> int:
    """Runs a job of four workers in the lab and writes its captures; returns their number of packets."""
    import driple

    experiment = {
        "name": "study",
        "setting": "cpu-p0w4-1g",
        "steps": steps,
        "warmup_steps": 2,
        "workloads": [{"model": "lenet", "batch_size": 4, "strategy": "allreduce", "framework": "torch"}],
        "network": {"loss": "0.001%"},  # with any loss, the packets of the lab have the size of the wire
        "capture": "headers",
    }
    (run,) = driple.run(experiment, output=folder / "runs").runs
    assert run.status == "sealed" and run.directory is not None, run.failure
    return write_captures(run.directory, folder / "job" / JOB)


def write_captures(run: Path, folder: Path) -> int:
    """Writes the packets that each host sent as a pcap file; returns their number."""
    from driple.contracts.formats.packets import TCP
    from driple.pipeline.readers.packet_file import read_packet_file

    folder.mkdir(parents=True)
    count = 0
    for number, path in enumerate(sorted(run.glob("packets/*.parquet"))):
        packets, _ = read_packet_file(path)
        packets = packets.only_flows([flow.sent is True and flow.protocol == TCP for flow in packets.flows])
        assert packets.segments.max() == 1, "the packets do not have the size of the wire"
        if not number:
            origin_ns = int(packets.t_ns[0])
        (folder / f"worker-{number}-tcpdump.pcap").write_bytes(_pcap(packets, origin_ns))
        count += len(packets)
    return count


def _pcap(packets: Any, origin_ns: int) -> bytes:
    """A pcap file with frames that have the headers of the packets."""
    head = [("magic", "<u4"), ("version", "<u4"), ("zone", "<i4"), ("digits", "<u4"), ("snap", "<u4"), ("link", "<u4")]
    start = np.array([(0xA1B2C3D4, 0x00040002, 0, 0, _SNAP, 1)], head)
    fields = [("s", "<u4"), ("us", "<u4"), ("captured", "<u4"), ("length", "<u4"), ("macs", "V12"), ("kind", ">u2")]
    fields += [("version", "u1"), ("tos", "u1"), ("total", ">u2"), ("id", ">u4"), ("ttl", "u1"), ("protocol", "u1")]
    fields += [("sum", ">u2"), ("ends", "V8"), ("ports", "V4"), ("seq", ">u4"), ("ack", ">u4"), ("offset", "u1")]
    fields += [("flags", "u1"), ("window", ">u2"), ("rest", f"V{_SNAP - 50}")]
    rows: Any = np.zeros(len(packets), fields)
    us = (packets.t_ns - origin_ns) // 1000 + START_S * 1_000_000
    rows["s"], rows["us"] = us // 1_000_000, us % 1_000_000
    rows["length"] = packets.frame_bytes
    rows["captured"] = np.minimum(packets.frame_bytes, _SNAP)
    rows["kind"], rows["version"], rows["ttl"], rows["protocol"] = 0x0800, 0x45, 64, 6
    rows["total"] = packets.frame_bytes - 14
    ends = [
        socket.inet_aton(flow.source.address) + socket.inet_aton(flow.destination.address) for flow in packets.flows
    ]
    rows["ends"] = np.array(ends, "V8")[packets.flow]
    ports = [flow.source.port.to_bytes(2, "big") + flow.destination.port.to_bytes(2, "big") for flow in packets.flows]
    rows["ports"] = np.array(ports, "V4")[packets.flow]
    rows["seq"], rows["ack"], rows["flags"], rows["window"] = packets.seq, packets.ack, packets.flags, 512
    rows["offset"] = (packets.frame_bytes - packets.payload_bytes - 34) // 4 << 4
    content = rows.view(np.uint8).reshape(len(rows), -1)
    keep = np.arange(content.shape[1]) < 16 + rows["captured"].astype(np.int64)[:, None]
    return bytes(start.tobytes()) + bytes(content[keep].tobytes())


def compare(checkout: Path, python: str, folder: Path) -> Round:
    """One round: their parsing and aggregates, then ours, each in new processes; CPU time."""
    jobs = folder / "job"
    shutil.rmtree(jobs / JOB / "parsed-files", ignore_errors=True)
    for path in jobs.glob("*.json"):
        path.unlink()
    scripts, where = checkout / "analysis", ["--path", f"{jobs}/"]
    parsing_s, failure = _cpu_s([python, str(scripts / "parsing_script.py"), *where])
    assert not failure, failure
    aggregating_s, message = _cpu_s([python, "-W", "ignore", str(scripts / "aggregate.py"), *where])
    out = folder / "ours.json"
    ours_s, failure = _cpu_s([sys.executable, __file__, "ours", str(jobs / JOB), str(out)])
    assert not failure, failure
    found = json.loads(out.read_text())
    return Round(parsing_s, aggregating_s, ours_s, found["cpu_s"], verdicts(jobs, found, message))


def _cpu_s(command: list[str]) -> tuple[float, str]:
    """CPU seconds of a command, and the last line of its errors if it failed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "TZ": "Europe/Berlin"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    failure = done.stderr.strip().splitlines()[-1] if done.returncode else ""
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, failure


def ours(folder: Path) -> dict[str, Any]:
    """The aggregates of the study, by Driple."""
    from driple.pipeline.traffic.capture_job import capture_job, captures_of
    from driple.pipeline.traffic.traffic_events import flow_size_cdf

    begin = time.process_time()
    job = capture_job(folder.name, folder, captures_of(folder))
    events, packets = job.events, job.packets
    assert packets is not None
    origin_ns = int(packets.t_ns[0])
    start_s = -(origin_ns % 1_000_000) / _NS
    end_s = start_s + (int(packets.t_ns[-1]) // 1_000_000 - origin_ns // 1_000_000 + 1) * _MS
    facts = events.flow_facts()
    sizes, share = flow_size_cdf(facts)
    found = {
        "bytes_sent": {task: sent for task, sent in events.sent().items() if sent},
        "matrix": [[*pair, count] for pair, count in events.matrix().items()],
        "number_flows": len(facts),
        "flow_cdf": [sizes.tolist(), share.tolist()],
        "bytes_per_ms": _bytes(events.throughput(_MS, start_s, end_s)),
        "pairs_per_ms": {str(pair): _bytes(rate) for pair, rate in events.pair_throughput(_MS, start_s, end_s).items()},
        "flows": [
            [row.flow.source.address, row.flow.source.port, row.flow.destination.address, row.flow.destination.port]
            + [round(row.start_s * _NS) + origin_ns, round(row.end_s * _NS) + origin_ns]
            for row in facts
        ],
        "load": events.load().tolist(),
    }
    return {**found, "cpu_s": time.process_time() - begin}


def _bytes(rate: Any) -> list[int]:
    whole: list[int] = np.rint(rate * _MS).astype(np.int64).tolist()
    return whole


def lines(packets: int, rounds: Sequence[Round], goal: float) -> list[str]:
    """The part of the page."""
    middle = statistics.median
    whole = [each.theirs_s / each.ours_s for each in rounds]
    inside = [each.theirs_s / each.inside_s for each in rounds]
    verdict = "reached" if middle(whole) >= goal else "NOT reached"
    return [
        f"Captures of a job of four workers, {packets:,} packets, as the study's tcpdump writes them: packets that",
        "were sent, 100 bytes of each. The study's own `parsing_script.py` and `aggregate.py` (its public repository",
        "`tum-lkn/dml-network-traffic-analysis`), unchanged, run on them with `tshark` and pandas 1. Ours reads the",
        "captures and computes the same aggregates, and the results are compared.",
        f"CPU time, {len(rounds)} rounds in turn:",
        "",
        "| | CPU seconds |",
        "|---|---|",
        f"| theirs: parsing | {middle(each.parsing_s for each in rounds):.1f} |",
        f"| theirs: aggregates | {middle(each.aggregating_s for each in rounds):.1f} |",
        f"| ours, the whole command with imports | {middle(each.ours_s for each in rounds):.2f} |",
        f"| ours, without the start of Python and the first imports | {middle(each.inside_s for each in rounds):.2f} |",
        "",
        f"The whole command is faster by {middle(whole):.0f} times ({min(whole):.0f} to {max(whole):.0f}), "
        f"the work alone by {middle(inside):.0f} times",
        f"({min(inside):.0f} to {max(inside):.0f}). The goal is {goal:g} times: {verdict}.",
        "",
        "| result | compared with theirs |",
        "|---|---|",
        *(f"| {name} | {verdict} |" for name, verdict in rounds[-1].verdicts.items()),
        "",
        "Their load of flows in pieces of 10 s was not compared, because their script fails before it.",
        "",
    ]


def verdicts(jobs: Path, found: dict[str, Any], message: str) -> dict[str, str]:
    """Compares the results of the scripts with ours."""
    own = jobs / JOB / "parsed-files"
    theirs: dict[str, Any] = {
        path.stem: json.loads(path.read_text()) for path in (*jobs.glob("*.json"), *own.glob("*.json"))
    }

    def column(name: str, key: str) -> list[Any]:
        return list(theirs[name][key].values())

    matrix = zip(*(column("joint_sent_received", key) for key in ("ip.src", "ip.dst", "frame.len")), strict=True)
    sizes, share = found["flow_cdf"]
    last = dict(zip(sizes, share, strict=True))
    cdf = dict(zip(column("flow_cdf", "value"), column("flow_cdf", "cdf"), strict=True))
    same = {
        "bytes sent of each worker": found["bytes_sent"] == theirs["bytes_sent"][JOB],
        "bytes of each pair": sorted(found["matrix"]) == sorted(map(list, matrix)),
        "number of flows": found["number_flows"] == theirs["number_flows"]["flows"][JOB],
        "sizes of flows and their CDF": last.keys() == cdf.keys()
        and all(math.isclose(last[size], cdf[size]) for size in last),
        "bytes in each ms": found["bytes_per_ms"] == column("bytes_per_sec", "frame.len"),
        "bytes of each pair in each ms": found["pairs_per_ms"]
        == {pair: list(values.values()) for pair, values in theirs["utilization"].items()},
    }
    text = {name: "equal" if equal else "DIFFERENT" for name, equal in same.items()}
    right = _right_times(theirs["flow_arrival"], found["flows"])
    text["start and end of each flow"] = f"{right[0]} of {right[1]} starts and {right[2]} ends are right in theirs"
    text["load of each flow in 10 s"] = f"theirs fails: {message}" if message else "not compared"
    return text


def _right_times(theirs: dict[str, dict[str, Any]], flows: list[list[Any]]) -> tuple[int, int, int]:
    """How many flows the scripts have, and of how many the start and the end are those of the captures."""
    ours = {tuple(flow[:4]): flow[4:] for flow in flows}
    names = ("ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "arrival.time", "departure.time")
    rows = list(zip(*(theirs[name].values() for name in names), strict=True))
    right = [[_ns(text) == ns for text, ns in zip(row[4:], ours[row[:4]], strict=True)] for row in rows]
    return sum(start for start, _ in right), len(rows), sum(end for _, end in right)


def _ns(text: str) -> int:
    """The time that tshark prints in summer in central Europe."""
    whole, _, rest = text.partition(".")
    summer = datetime.timezone(datetime.timedelta(hours=2))
    second = datetime.datetime.strptime(" ".join(whole.split()), _TIME).replace(tzinfo=summer)
    return int(second.timestamp()) * _NS + int(rest.split()[0])


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(ours(Path(sys.argv[2]))))
