"""The caller's side of the killable workers: lend them to threads, watch the clock, replace what was killed."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from isentrope.errors import IsentropeError
from isentrope.tasks.workers import server

START = "import sys; sys.path[:] = {path!r}; from isentrope.tasks.workers.server import serve; serve({fd})"

STARVED_FRACTION = 0.25
"""A worker that got less than this share of a processor until its limit is given up to ``LONGEST_EXTENSION`` limits."""
STARVED_PAUSE_S = 0.05

Status = Literal["done", "timeout", "memory", "died", "failed"]


class WorkerError(IsentropeError, RuntimeError):
    """The processes can't be started."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What became of one call."""

    status: Status
    """``failed``: the function raised. ``died``: the process ended twice, such as by a crash in compiled code."""
    value: Any = None
    """The function's result for ``done``, the exception's name for ``failed``."""
    seconds: float = 0.0
    """Wall-clock time."""


@dataclass(kw_only=True, eq=False)
class _Worker:
    connection: Connection
    pid: int
    generation: int
    calls: int = 0


@dataclass(kw_only=True, eq=False)
class _Call:
    worker: _Worker
    index: int
    tries: int
    started: float = field(default_factory=time.monotonic)
    processor_s: float | None = None

    def __post_init__(self) -> None:
        self.processor_s = _processor_s(self.worker.pid)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def overran(self, timeout_s: float) -> bool:
        """Past the limit; or past the longer one, where others kept it from running for most of the time.

        Without this an overloaded machine would turn right answers into timeouts.
        """
        seconds = self.seconds
        if seconds < timeout_s or self.processor_s is None:
            return seconds >= timeout_s
        ran_s = (_processor_s(self.worker.pid) or math.inf) - self.processor_s
        return ran_s >= STARVED_FRACTION * timeout_s or seconds >= server.LONGEST_EXTENSION * timeout_s


class WorkerPool:
    """Runs ``function`` in processes of its own, each call with a wall-clock limit.

    Processes start with the first call and end with :meth:`close` or with this process. Any thread may call, several at
    once share the workers. After a fork the child starts processes of its own. Ctrl-C doesn't reach the workers.
    """

    def __init__(
        self,
        function: str,
        *,
        warm_up: Sequence[Any] = (),
        size: int | None = None,
        memory_bytes: int = 512 * 2**20,
        calls_per_worker: int = 2000,
        start_timeout_s: float = 120.0,
    ) -> None:
        """
        Args:
            function: "module:function" of one picklable argument, with a result that JSON can hold.
            warm_up: arguments it is called with before the first worker, so that every worker begins warm.
            size: workers, at most; None for the number of cores, at most 4.
            memory_bytes: of each worker, beyond what it shares with the others.
            calls_per_worker: after so many a worker is replaced, and with it whatever its packages have cached.
            start_timeout_s: for loading the packages.
        """
        self.size = size if size is not None else max(1, min(4, _cores()))
        self._setup = {"function": function, "warm_up": tuple(warm_up), "memory_bytes": memory_bytes}
        self._calls_per_worker, self._start_timeout_s = calls_per_worker, start_timeout_s
        self.modules: list[str] = []
        """Top-level modules that the workers have loaded."""
        self.replaced = 0
        """Workers killed or lost so far."""
        self._forget()
        _POOLS.add(self)

    def _forget(self) -> None:
        """Without a process, as after the construction: what there was belongs to the parent of a fork."""
        self._free = threading.Condition()
        self._talk = threading.RLock()
        self._idle: list[_Worker] = []
        self._alive = 0
        self._generation = 0
        self._server: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def map(self, arguments: Sequence[Any], *, timeout_s: float) -> list[Reply]:
        """The reply to each call, in order; an overrun one costs ``timeout_s`` and its worker.

        Raises:
            WorkerError: the processes can't be started.
        """
        replies: list[Reply | None] = [None] * len(arguments)
        waiting = deque((index, 0) for index in range(len(arguments)))
        running: dict[Connection, _Call] = {}
        try:
            while waiting or running:
                while waiting and (worker := self._take(block=not running)):
                    index, tries = waiting.popleft()
                    running[worker.connection] = _Call(worker=worker, index=index, tries=tries)
                    # A worker that died idle is found when its end of the socket is read.
                    with contextlib.suppress(OSError):
                        worker.connection.send_bytes(pickle.dumps((timeout_s, arguments[index])))
                first_s = timeout_s - max(call.seconds for call in running.values())
                for connection in wait(list(running), first_s if first_s > 0 else STARVED_PAUSE_S):
                    assert isinstance(connection, Connection)
                    call = running.pop(connection)
                    reply = self._read(call)
                    if reply.status == "died" and call.tries == 0:
                        waiting.appendleft((call.index, 1))
                    else:
                        replies[call.index] = reply
                for connection, call in list(running.items()):
                    if call.overran(timeout_s) and not connection.poll():
                        del running[connection]
                        self._end(call.worker)
                        replies[call.index] = Reply(status="timeout", seconds=call.seconds)
        finally:  # an interrupted call: its workers would answer the next one with this one's results
            for call in running.values():
                self._end(call.worker)
        return [reply for reply in replies if reply is not None]

    def close(self) -> None:
        """Ends every process. The next call would start new ones."""
        with self._talk, self._free:
            for worker in self._idle:
                worker.connection.close()
            self._idle.clear()
            self._alive = 0
            self._generation += 1
            if self._server is not None:
                self._server.close()
            if self._process is not None:  # it kills its workers when it sees the socket closed, and ends
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(2.0)
            self._stop_server()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _read(self, call: _Call) -> Reply:
        try:
            message = call.worker.connection.recv_bytes()
        except (EOFError, OSError):
            self._end(call.worker)
            return Reply(status="died", seconds=call.seconds)
        if message == server.MEMORY:
            self._end(call.worker)
            return Reply(status="memory", seconds=call.seconds)
        self._give_back(call.worker)
        status: Status = "done" if message[:1] == server.DONE else "failed"
        return Reply(status=status, value=json.loads(message[1:]), seconds=call.seconds)

    def _take(self, *, block: bool) -> _Worker | None:
        with self._free:
            while True:
                if self._idle:
                    return self._idle.pop()
                if self._alive < self.size:
                    self._alive += 1
                    generation = self._generation
                    break
                if not block:
                    return None
                self._free.wait()
        try:
            return self._fork(generation)
        except BaseException:
            self._release(generation)
            raise

    def _give_back(self, worker: _Worker) -> None:
        worker.calls += 1
        if worker.calls >= self._calls_per_worker:
            worker.connection.close()  # it reads the end of the file, and ends
            self._release(worker.generation)
            return
        with self._free:
            if worker.generation == self._generation:
                self._idle.append(worker)
                self._free.notify()
            else:
                worker.connection.close()

    def _release(self, generation: int) -> None:
        with self._free:
            if generation == self._generation:
                self._alive -= 1
            self._free.notify()

    def _end(self, worker: _Worker) -> None:
        self.replaced += 1
        worker.connection.close()
        with self._talk:
            if self._server is not None and worker.generation == self._generation:
                with contextlib.suppress(OSError, EOFError):
                    self._ask(server.KILL, worker.pid)
        self._release(worker.generation)

    def _fork(self, generation: int) -> _Worker:
        with self._talk:
            for _ in range(2):
                if self._server is None:
                    self._start()
                ours, theirs = socket.socketpair()
                try:
                    pid = self._ask(server.FORK, 0, theirs.fileno())
                except (OSError, EOFError):  # the server was killed: start another one
                    ours.close()
                    continue
                finally:
                    theirs.close()
                return _Worker(connection=Connection(ours.detach()), pid=pid, generation=generation)
        raise WorkerError("the processes that check answers end as soon as they are started. Is there memory left?")

    def _ask(self, request: bytes, pid: int, *fds: int) -> int:
        assert self._server is not None
        message = server.REQUEST.pack(request, pid)
        try:
            if fds:
                socket.send_fds(self._server, [message], list(fds))
            else:
                self._server.sendall(message)
            return int(server.ANSWER.unpack(server.receive(self._server, server.ANSWER.size))[0])
        except BaseException:  # cut off in the middle: the next answer would be this one's
            self._stop_server()
            raise

    def _start(self) -> None:
        if os.name != "posix":
            raise WorkerError("answers that need algebra are checked in forked processes, which needs Linux or macOS.")
        ours, theirs = socket.socketpair()
        path = [os.path.abspath(part) if part else os.getcwd() for part in sys.path]
        # No fork of this process: it may hold threads, a CUDA context and gigabytes. A session of its own: Ctrl-C in the
        # terminal goes to this process only.
        self._process = subprocess.Popen(
            [sys.executable, "-c", START.format(path=path, fd=theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        ours.settimeout(self._start_timeout_s)
        try:
            server.send(ours, pickle.dumps(self._setup))
            report = json.loads(server.receive(ours, server.ANSWER.unpack(server.receive(ours, server.ANSWER.size))[0]))
        except (OSError, EOFError) as error:
            report = {"error": f"no answer within {self._start_timeout_s:g} s ({error})"}
        self._server = ours
        if report["error"]:
            self._stop_server()
            raise WorkerError(
                f"the process that runs {self._setup['function']} can't be started: {report['error']}. Are the packages it "
                f"needs installed for {sys.executable}?"
            )
        ours.settimeout(30.0)
        self.modules = report["modules"]

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._server = self._process = None

    def _abandon(self) -> None:
        """In the child of a fork: let go of the parent's processes without a word to them."""
        for connection in [self._server, *(worker.connection for worker in self._idle)]:
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.close()
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
        self._forget()


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _processor_s(pid: int) -> float | None:
    """Processor time a process has used, or None where the system doesn't tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _after_fork() -> None:
    for pool in list(_POOLS):
        pool._abandon()


def _at_exit() -> None:
    for pool in list(_POOLS):
        pool.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
