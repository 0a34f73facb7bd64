"""Traces with causes planted in them: requests of one phase after the other, as clients make them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from wire.trace.rows import Bypass, CallSite, Run, TracedRequest

LATENCY_S = 0.08
RATE = 40e6  # bytes per second of a stream
HOST = "store.example"


@dataclass
class Program:
    """Make the requests of a program, phase by phase, on a clock that goes on."""

    now_s: float = 1.0
    rows: list[TracedRequest] = field(default_factory=list)
    sites: list[CallSite | None] = field(default_factory=list)
    cpu_s: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0), (1.0, 1.0)])
    bypassed: list[Bypass] = field(default_factory=list)
    line: CallSite | None = None
    agent: str = ""
    exit_code: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def at(
        self, line: int, source: str = "", library_call: str = "", function: str = "<module>"
    ) -> None:
        """Go to a line of the program, which all that follows is for."""
        self.line = CallSite("my.py", line, function, source, library_call, True)

    def pause(self, seconds: float, *, busy: bool = False) -> None:
        """Let time pass, in which the program computes or not."""
        self.cpu_s.append((self.now_s, self.cpu_s[-1][1]))
        self.now_s += seconds
        self.cpu_s.append((self.now_s, self.cpu_s[-1][1] + seconds * busy))

    def request(
        self,
        key: str,
        nbytes: int = 30_000,
        *,
        method: str = "GET",
        status: int = 200,
        start: int | None = None,
        latency_s: float = LATENCY_S,
        new_s: float = 0.0,
        rate: float = RATE,
        **more: object,
    ) -> float:
        """Make a request now, and return when it ends."""
        start_s = self.now_s + new_s
        first_s = start_s + latency_s * self.rng.uniform(0.85, 1.2)
        nbytes = nbytes if method == "GET" and status < 300 else 0
        row = TracedRequest(
            start_s, first_s, first_s + nbytes / rate, method=method, key=key, status=status, nbytes=nbytes,
            range_start=start, range_nbytes=None if start is None else nbytes, host=HOST,
            user_agent=self.agent, is_first=new_s > 0, handshake_s=new_s, **more,  # type: ignore[arg-type]
        )  # fmt: skip
        self.rows.append(row)
        self.sites.append(self.line)
        return row.end_s

    def wait(
        self, key: str, nbytes: int = 30_000, *, think_s: float = 0.002, **more: object
    ) -> None:
        """Make a request, and wait for it."""
        self.now_s = self.request(key, nbytes, **more) + think_s  # type: ignore[arg-type]

    def together(
        self, keys: Sequence[str], nbytes: int = 30_000, *, n: int = 10, **more: object
    ) -> None:
        """Make requests, so many at once, and wait for all."""
        ends = list[float]()
        for key in keys:
            if len(ends) >= n:
                self.now_s = max(self.now_s, heapq.heappop(ends))
            heapq.heappush(ends, self.request(key, nbytes, **more))  # type: ignore[arg-type]
        self.now_s = max(ends) + 0.002

    def end(self, *, has_lines: bool = True) -> Run:
        """Return the run."""
        self.cpu_s.append((self.now_s, self.cpu_s[-1][1]))
        return Run(
            self.rows, self.now_s, 0.0, self.exit_code, self.cpu_s, bypassed=self.bypassed,
            sites=self.sites if has_lines else (),
        )  # fmt: skip


Plant = Callable[[Program], None]


def in_turn(program: Program) -> None:
    """Objects one after the other."""
    program.agent = "Boto3/1.43"
    for i in range(20):
        program.wait(f"/b/files/{i}.bin")


def in_turn_chunks(program: Program) -> None:
    """Chunks of an array, one selection each."""
    program.agent = "aiobotocore/3.10"
    for i in range(20):
        program.wait(f"/b/a/c/{i}", 300_000)


def in_turn_shard(program: Program) -> None:
    """Chunks of a shard, one selection each."""
    program.agent = "object_store/0.12"
    program.wait("/b/s/c/0", 1000, start=50_000_000)
    for i in range(20):
        program.wait("/b/s/c/0", 100_000, start=2_000_000 * (20 - i))


def few(program: Program) -> None:
    """Three at once, of sixty."""
    program.agent = "python-requests/2.33"
    program.together([f"/b/few/{i}.bin" for i in range(60)], n=3)


def few_by_default(program: Program) -> None:
    """Zarr's ten at once, of two hundred."""
    program.agent = "object_store/0.12"
    program.together([f"/b/big/c/{i}" for i in range(200)], 300_000, n=10)


def looks(program: Program) -> None:
    """A HEAD before each of few chunks that are read at once."""
    program.agent = "aiobotocore/3.10"
    for part in range(8):
        keys = [f"/b/looks/c/{part}/{i}" for i in range(20)]
        program.together(keys, method="HEAD", n=20)
        program.together(keys, n=20)


def metadata(program: Program) -> None:
    """Each array's metadata, with a look-up of what is not there."""
    program.agent = "aiobotocore/3.10"
    for i in range(15):
        program.wait(f"/b/tree/v{i}/.zarray", status=404)
        program.wait(f"/b/tree/v{i}/zarr.json", 800)


def metadata_family(program: Program) -> None:
    """A HEAD, a listing and metadata of each array."""
    program.agent = "aiobotocore/3.10"
    for i in range(12):
        program.wait(f"/b/family/v{i}/zarr.json", method="HEAD")
        program.wait(f"/b/family/v{i}/zarr.json", 800)
        program.wait("/b", 900, is_listing=True)


def tree(program: Program) -> None:
    """Coordinates of each group of a tree."""
    program.agent = "aiobotocore/3.10"
    for group in range(8):
        for name in ("time", "latitude", "longitude"):
            program.wait(f"/b/tree.zarr/g{group}/{name}/c/0", 4000)


def probes(program: Program) -> None:
    """Files that are not there."""
    program.agent = "GDAL/3.12"
    for i in range(20):
        program.wait(f"/b/image{i}.tif.aux.xml", status=404)


def listings(program: Program) -> None:
    """A listing before each read."""
    program.agent = "object_store/0.12"
    for i in range(15):
        program.wait("/b", 50_000, is_listing=True)
        program.together([f"/b/listed/{i}/{j}.bin" for j in range(2)], n=2)


def repeats(program: Program) -> None:
    """The same objects again."""
    program.agent = "python-requests/2.33"
    for _ in range(10):
        program.together([f"/b/again/{i}.bin" for i in range(20)], n=20)


def samples(program: Program) -> None:
    """A chunk again for each sample that lies in it."""
    program.agent = "object_store/0.12"
    for chunk in range(3):
        for _ in range(15):
            program.wait(f"/b/samples/c/{chunk}", 900_000)


def overlaps(program: Program) -> None:
    """Fifty MiB ahead at each jump."""
    program.agent = "aiobotocore/3.10"
    for i in range(6):
        program.wait(
            "/b/large.nc", 50_000_000 - 5_000_000 * (5 - i), start=25_000_000 - 5_000_000 * i
        )


def neighbours(program: Program) -> None:
    """A file piece by piece."""
    program.agent = "Boto3/1.43"
    for i in range(30):
        program.wait("/b/pieces.bin", 60_000, start=60_000 * i)


def file_object(program: Program) -> None:
    """Small reads all over a file, without blocks."""
    program.agent = "aiobotocore/3.10"
    for i in range(60):
        program.wait("/b/scattered.h5", 3000, start=(i * 7919 % 61) * 130_000)


def parts_in_turn(program: Program) -> None:
    """Parts of one object, one after the other."""
    program.agent = "python-httpx/0.28"
    for i in range(30):
        program.wait("/b/parts.bin", 20_000, start=(i * 11 % 30) * 3_000_000)


def one_stream(program: Program) -> None:
    """A large object over one connection."""
    program.agent = "python-requests/2.33"
    program.wait("/b/whole.bin", 120_000_000)


def small_chunks(program: Program) -> None:
    """Many chunks of 3 kB."""
    program.agent = "object_store/0.12"
    program.together([f"/b/small/c/{i}" for i in range(900)], 3000, n=40)


def slow_tail(program: Program) -> None:
    """Three of 300 answers take two seconds."""
    program.agent = "python-requests/2.33"
    for i in range(3):
        program.together([f"/b/tail/{i}/{j}.bin" for j in range(100)], n=100)
        program.wait(f"/b/tail/{i}/late.bin", latency_s=2.0)


def writes(program: Program) -> None:
    """Objects written one after the other."""
    program.agent = "Boto3/1.43"
    for i in range(20):
        program.wait(f"/b/out/{i}", method="PUT", sent_nbytes=100_000)


def throttled(program: Program) -> None:
    """Refusals, and waits on purpose."""
    program.agent = "aiobotocore/3.10"
    for i in range(10):
        program.wait(f"/b/limit/{i}", status=503)
        program.pause(0.4)
        program.together([f"/b/limit/{i}", *(f"/b/limit/{i}/{j}" for j in range(3))], n=4)


def client(program: Program) -> None:
    """A client made anew for each read."""
    program.agent = "Boto3/1.43"
    for i in range(15):
        program.pause(0.3, busy=True)
        program.wait("/b/same.bin", start=i * 4_000_000, new_s=0.004, latency_s=0.02)


def connections(program: Program) -> None:
    """A connection for each request."""
    program.agent = "python-requests/2.33"
    for i in range(4):
        program.together([f"/b/new/{i}/{j}.bin" for j in range(6)], n=2, new_s=0.09, latency_s=0.02)


def redirects(program: Program) -> None:
    """Two answers of which the first sends the client elsewhere."""
    program.agent = "python-requests/2.33"
    for i in range(10):
        keys = [f"/b/moved/{i}/{j}.bin" for j in range(20)]
        program.together(keys, status=307, n=20)
        program.together([f"{key}x" for key in keys], n=20)


def refused(program: Program) -> None:
    """Everything is refused."""
    program.agent = "python-requests/2.33"
    program.together([f"/b/refused/{i}.bin" for i in range(40)], status=400, n=20)


def failed(program: Program) -> None:
    """Chunks that never come."""
    program.agent = "aiobotocore/3.10"
    program.together([f"/b/holes/c/{i}" for i in range(30)], n=30)
    program.together([f"/b/holes/c/{i}" for i in range(30, 33)], status=403, n=3)


def credentials(program: Program) -> None:
    """Credentials that are not there."""
    program.agent = "Boto3/1.43"
    program.bypassed.append(Bypass(1, "python", "169.254.169.254:80"))
    program.together([f"/b/first/{i}" for i in range(3)])
    program.pause(4.0)
    program.together([f"/b/then/{i}" for i in range(3)])


def far(program: Program) -> None:
    """A store in another part of the world."""
    program.agent = "python-requests/2.33"
    for i in range(4):
        program.together(
            [f"/b/far/{i}/{j}.bin" for j in range(20)], n=20, latency_s=0.16, new_s=0.3 * (i == 0)
        )


def processor(program: Program) -> None:
    """Computing between reads."""
    program.agent = "object_store/0.12"
    for i in range(8):
        program.together([f"/b/cpu/{i}/{j}.bin" for j in range(8)], n=8)
        program.pause(0.7, busy=True)


def link(program: Program) -> None:
    """Bodies that flow all the time."""
    program.agent = "object_store/0.12"
    program.together([f"/b/link/c/{i}" for i in range(20)], 40_000_000, n=20, rate=8e6)


ONE_CAUSE: list[tuple[str, Plant]] = [
    ("in-turn", in_turn), ("in-turn", in_turn_chunks), ("in-turn", in_turn_shard), ("few", few),
    ("few", few_by_default), ("looks", looks), ("metadata", metadata), ("metadata", metadata_family),
    ("tree", tree), ("probes", probes), ("listings", listings), ("repeats", repeats), ("samples", samples),
    ("overlaps", overlaps), ("neighbours", neighbours), ("file-object", file_object),
    ("parts-in-turn", parts_in_turn), ("one-stream", one_stream), ("small-chunks", small_chunks),
    ("slow-tail", slow_tail), ("writes", writes), ("throttled", throttled), ("client", client),
    ("connections", connections), ("redirects", redirects), ("refused", refused), ("failed", failed),
    ("credentials", credentials), ("far", far), ("processor", processor), ("link", link),
]  # fmt: skip

SEVERAL: list[dict[str, Plant]] = [
    {"in-turn": in_turn, "few": few},
    {"in-turn": in_turn_chunks, "looks": looks},
    {"metadata": metadata, "few": few_by_default},
    {"metadata": metadata_family, "in-turn": in_turn_chunks},
    {"file-object": file_object, "in-turn": in_turn},
    {"listings": listings, "one-stream": one_stream},
    {"probes": probes, "repeats": repeats},
    {"writes": writes, "few": few},
    {"tree": tree, "samples": samples},
    {"overlaps": overlaps, "in-turn": in_turn},
    {"metadata": metadata, "in-turn": in_turn_chunks, "writes": writes},
    {"neighbours": neighbours, "redirects": redirects, "in-turn": in_turn},
]


def one_object(program: Program) -> None:
    """A small object."""
    program.wait("/b/one.bin")


def one_wall(program: Program) -> None:
    """Many objects at once."""
    program.together([f"/b/wall/{i}.bin" for i in range(60)], n=60)


def one_selection(program: Program) -> None:
    """Metadata, then all chunks at once."""
    program.agent = "object_store/0.12"
    program.wait("/b/cube/zarr.json", 4000)
    program.together([f"/b/cube/c/{i}" for i in range(40)], 300_000, n=40)


def three_in_turn(program: Program) -> None:
    """Three objects, each after the other."""
    for i in range(3):
        program.wait(f"/b/three/{i}.bin")


def large_ranges(program: Program) -> None:
    """A large object in ranges at once."""
    for i in range(12):
        program.request("/b/big.bin", 1_048_576, start=1_048_576 * i)
    program.now_s += 0.2


def index_then_parts(program: Program) -> None:
    """The foot of a file, then its parts at once."""
    program.wait("/b/table.parquet", 60_000, start=9_000_000)
    for i in range(20):
        program.request("/b/table.parquet", 300_000, start=400_000 * i)
    program.now_s += 0.1


def few_writes(program: Program) -> None:
    """Three objects written."""
    for i in range(3):
        program.wait(f"/b/out/{i}", method="PUT", sent_nbytes=1000)


def long_start(program: Program) -> None:
    """A program that starts for long and reads little."""
    program.pause(6.0, busy=True)
    program.together([f"/b/few/{i}.bin" for i in range(5)], n=5)


NOTHING: list[Plant] = [
    one_object, one_wall, one_selection, three_in_turn, large_ranges, index_then_parts, few_writes, long_start,
]  # fmt: skip


def make_run(*plants: Plant, pause_s: float = 0.0, has_lines: bool = True) -> Run:
    """Make the run of a program with some phases, each on a line of its own."""
    program = Program()
    for number, plant in enumerate(plants):
        if number:
            program.pause(pause_s)
        program.at(10 * (number + 1), f"{plant.__name__}()")
        plant(program)
    return program.end(has_lines=has_lines)


def on_loopback(run: Run) -> Run:
    """Move the store of a run to this machine."""
    return replace(run, rows=[replace(row, host="127.0.0.1:9000") for row in run.rows])
