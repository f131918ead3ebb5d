"""The loop: at each tick one row of all sources, in blocks to the writer, and the truth about how it went.

What stays in memory is one block of rows and histograms of fixed size, however long it runs.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence

from driple.agents.sampler.parquet_writer import Cell, Field
from driple.agents.sampler.quality import Histogram, Reads, SourceQuality
from driple.agents.sampler.samples_file import Stream
from driple.agents.sampler.samples_writer import BLOCK_ROWS, FLUSH_NS, SampleWriter
from driple.agents.sampler.stop_control import Control
from driple.agents.sampler.ticker import SECOND_NS, Ticker, own_usage, real_at
from driple.agents.sources.base import Late, Source, Value, declared
from driple.contracts.formats.trace import TRACE_COLUMNS, Column

# Quality so far goes into the file this often, for the case that nobody is left to write it at the end.
_NOTE_NS = 30 * SECOND_NS
_LOOK_NS = SECOND_NS // 10
_CLOSE_NS = 5_000_000  # all slow reads together take about 1 ms

_COLUMNS: Dict[str, Column] = {column.name: column for column in TRACE_COLUMNS}
_TIME_FIELDS = (Field.of(_COLUMNS["t_mono_ns"]), Field.of(_COLUMNS["t_real_ns"]))


class Table(Protocol):
    """Something with a table of its own: many rows at each read, such as the flows of a host."""

    name: str
    columns: Sequence[Column]
    period_ticks: int

    def open(self) -> None:
        """As of a Source."""

    def read(self, t_mono_ns: int) -> Sequence[Sequence[Cell]]:
        """Rows as wide as `columns`, the time first."""

    def quality(self) -> Dict[str, Any]:
        """As of a Source."""

    def close(self) -> None:
        """As of a Source."""


def streams_of(sources: Sequence[Source], tables: Sequence[Table]) -> List[Stream]:
    """Stream 0 is the ticks; then one for late samples of each source; then one for each table."""
    fields = [tuple(Field(name, _COLUMNS[declared(name)].type) for name in source.columns) for source in sources]
    streams = [Stream("trace", _TIME_FIELDS + sum(fields, ()))]
    streams += [Stream("trace", _TIME_FIELDS[:1] + own) for own in fields]
    return streams + [Stream(table.name, tuple(Field.of(column) for column in table.columns)) for table in tables]


class _Pace:
    """On which ticks something is read that is not read on all of them.

    All is read on the first tick. After it, where ticks are close, everything has ticks of its own: slow reads must not
    add up to one that makes the next tick late. Where there is time they go together, which is cheaper: what comes
    second finds the caches warm.
    """

    def __init__(self, period_ticks: int) -> None:
        self.due = 0
        self._period = period_ticks

    def kept(self, number: int, place: int) -> None:
        """Was read on a tick; those of different `place` do not meet again."""
        if self.due == 0:
            self.due = self._period + min(place, self._period - 1)
        else:
            self.due += self._period * ((number - self.due) // self._period + 1)


class _Slot:
    """A source, where its columns are in a row, and what is counted about it."""

    def __init__(self, source: Source, at: int, stream: int, tick_ns: int, ticks: Reads) -> None:
        self.source = source
        self.at = at
        self.end = at + len(source.columns)
        self.stream = stream
        self.pace = _Pace(source.period_ticks)
        self.marks: List[int] = []  # rows of the block in which it was read; unused for one that is read on every tick
        self.late: List[Late] = []
        self.costs: List[int] = []
        # Those that are read on every tick share the count of its times.
        reads = ticks if source.period_ticks == 1 else Reads(tick_ns * source.period_ticks)
        self.quality = SourceQuality(source.columns, reads)

    def observe(self, columns: Sequence[Sequence[Any]]) -> None:
        times: Sequence[int] = columns[0]
        own: Sequence[Sequence[Value]] = columns[self.at : self.end]
        if self.source.period_ticks > 1:
            marks = self.marks
            times = [times[i] for i in marks]
            own = [[column[i] for i in marks] for column in own]
            self.marks = []
            self.quality.reads.observe(times)
        self.quality.observe(times, own)
        self.quality.cost.extend(self.costs)
        self.costs.clear()

    def summary(self) -> Dict[str, Any]:
        return {**self.source.quality(), **self.quality.summary()}


class Sampler:
    """Samples opened sources into a writer until its control says stop."""

    def __init__(
        self,
        sources: Sequence[Source],
        tables: Sequence[Table],
        writer: SampleWriter,
        ticker: Ticker,
        control: Control,
        facts: Optional[Dict[str, Any]] = None,
        progress: Optional[Callable[[Ticker, int], None]] = None,
    ) -> None:
        """`facts` joins the summary; `progress` is called each second with the ticker and the bytes written."""
        self._facts = facts or {}
        self._writer = writer
        self._ticker = ticker
        self._control = control
        self._progress = progress
        self._tables = [_TableSlot(table, 1 + len(sources) + i, ticker.period_ns) for i, table in enumerate(tables)]
        self._slots: List[_Slot] = []
        self._ticks = Reads(ticker.period_ns)
        at = len(_TIME_FIELDS)
        for i, source in enumerate(sources):
            self._slots.append(_Slot(source, at, 1 + i, ticker.period_ns, self._ticks))
            at = self._slots[-1].end
        self._blank: List[Value] = [None] * at
        self._rows: List[List[Value]] = []
        self._flush_ns = self._note_ns = self._began_ns = self._ended_ns = 0
        self._cpu_before = 0.0
        self._count = 0

    def run(self) -> None:
        """Samples until told to stop; everything is in the file afterwards. Raises DiskFull."""
        gc.collect()
        gc.freeze()
        gc.disable()  # nothing here makes cycles, and a collection would cost ticks
        self._cpu_before, _ = own_usage()
        try:
            self._loop()
        finally:
            gc.enable()
            gc.unfreeze()
        self._read_all(self._ticker.now())
        self.flush()

    def _loop(self) -> None:
        ticker, control, rows, blank = self._ticker, self._control, self._rows, self._blank
        steady = [slot for slot in self._slots if slot.source.period_ticks == 1]
        reads = [(slot.source.read, slot.at) for slot in steady]
        next_real = next_look = next_progress = due = 0
        ticker.begin()
        while True:
            t = ticker.tick()
            if t < 0:
                return
            if t >= next_look:
                if control.look(t):
                    return
                next_look = min(t + _LOOK_NS, control.end_ns)
            row = blank.copy()
            row[0] = t
            if t >= next_real:
                row[1] = real_at(t)
                next_real = t + SECOND_NS
            if not rows:
                self._timed(steady, t, row)
            else:
                for read, at in reads:
                    read(t, row, at)
            if ticker.number >= due:
                due = self._read_slow(t, row)
            rows.append(row)
            if len(rows) >= BLOCK_ROWS or t >= self._flush_ns:
                self.flush(t)
                if self._progress is not None and t >= next_progress:
                    self._progress(ticker, self._writer.written)
                    next_progress = t + SECOND_NS

    def _read_slow(self, t: int, row: List[Value]) -> int:
        """Reads what is not read on every tick and is due now. Returns the tick on which something is due again."""
        number, paces = self._ticker.number, []
        apart = self._ticker.period_ns < _CLOSE_NS
        for slot in self._slots:
            if slot.source.period_ticks > 1:
                paces.append(slot.pace)
                if number >= slot.pace.due:
                    slot.pace.kept(number, apart * len(paces))
                    slot.marks.append(len(self._rows))
                    self._timed((slot,), t, row)
        for table in self._tables:
            paces.append(table.pace)
            if number >= table.pace.due:
                table.pace.kept(number, apart * len(paces))
                table.read(t)
        return min((pace.due for pace in paces), default=sys.maxsize)

    def _read_all(self, t: int) -> None:
        """Reads everything at the stop, whatever is due: counters then tell all that happened until it."""
        row = self._blank.copy()
        row[:2] = t, real_at(t)
        for slot in self._slots:
            slot.marks.append(len(self._rows))
        self._timed(self._slots, t, row)
        for table in self._tables:
            table.read(t)
        self._rows.append(row)

    def _timed(self, slots: Sequence[_Slot], t: int, row: List[Value]) -> None:
        """Reads sources and their late samples, and measures the cost: on one tick of a block, as that costs too."""
        before = time.perf_counter_ns()
        for slot in slots:
            slot.source.read(t, row, slot.at)
            late = slot.source.extra()
            if late:
                slot.late.extend(late)
            after = time.perf_counter_ns()
            slot.costs.append(after - before)
            before = after

    def flush(self, t: int = 0) -> None:
        """Hands all rows to the kernel. Raises DiskFull if the file could not be extended."""
        if self._rows:
            columns = list(zip(*self._rows))
            self._rows.clear()
            self._writer.add(0, columns)
            self._began_ns = self._began_ns or columns[0][0]
            self._ended_ns = columns[0][-1]
            self._count += len(columns[0])
            self._ticks.observe(columns[0])
            for slot in self._slots:
                slot.observe(columns)
        for slot in self._slots:
            if slot.late:
                self._add_late(slot)
        for table in self._tables:
            table.flush(self._writer)
        if t >= self._note_ns:
            # Soon after the start too, for the facts alone.
            self._writer.note(self.summary())
            self._note_ns = t + _NOTE_NS
        self._writer.flush()
        self._flush_ns = t + FLUSH_NS

    def finish(self) -> Dict[str, Any]:
        """Takes the last late samples, writes the final note, and gives it."""
        for slot in self._slots:
            slot.late.extend(slot.source.extra(last=True))
        self.flush()
        summary = {**self.summary(), "clean_stop": True}
        self._writer.note(summary)
        self._writer.flush()
        return summary

    def summary(self) -> Dict[str, Any]:
        """Plain values: how the loop went, and the quality of every source and table."""
        cpu, peak = own_usage()
        seconds = (self._ended_ns - self._began_ns) / SECOND_NS
        loop = self._ticker.summary()
        loop["ticks"] = self._count  # as many as rows: with the read at the stop, without a tick that only stopped it
        loop["cpu_share_pct"] = round(100.0 * (cpu - self._cpu_before) / seconds, 3) if seconds > 0 else None
        loop["peak_memory_bytes"] = peak
        loop["values_refused"] = self._writer.refused.count
        return {
            **self._facts,
            "stopped_by": self._control.reason,
            "seconds": round(seconds, 3),
            "first_mono_ns": self._began_ns,
            "last_mono_ns": self._ended_ns,
            "loop": loop,
            "sources": {slot.source.name: slot.summary() for slot in self._slots},
            "tables": {slot.table.name: slot.summary() for slot in self._tables},
        }

    def _add_late(self, slot: _Slot) -> None:
        late, slot.late = slot.late, []
        slot.quality.observe_late(late)
        times = [t for t, _ in late]
        self._writer.add(slot.stream, [times, *zip(*(values for _, values in late))])


class _TableSlot:
    """A table, its stream, and what is counted about it."""

    def __init__(self, table: Table, stream: int, tick_ns: int) -> None:
        self.table = table
        self.stream = stream
        self.pace = _Pace(table.period_ticks)
        self.rows: List[Sequence[Cell]] = []
        self._count = 0
        self._reads = Reads(tick_ns * table.period_ticks)
        self._cost = Histogram()

    def read(self, t: int) -> None:
        before = time.perf_counter_ns()
        self.rows.extend(self.table.read(t))
        self._cost.add(time.perf_counter_ns() - before)
        self._reads.observe((t,))

    def flush(self, writer: SampleWriter) -> None:
        if self.rows:
            self._count += len(self.rows)
            writer.add(self.stream, list(zip(*self.rows)))
            self.rows.clear()

    def summary(self) -> Dict[str, Any]:
        own = {"rows": self._count, "read_cost_us": self._cost.summary(1e3)}
        return {**self.table.quality(), **self._reads.summary(), **own}


def machine() -> Dict[str, Any]:
    """Facts about the host for the trace."""
    uname = os.uname()
    return {"host": uname.nodename, "kernel": uname.release, "machine": uname.machine, "processors": os.cpu_count()}
