"""The processes behind a pool: a server that imports the heavy packages once, and workers that it forks.

Started as ``python -c`` with one socket. The caller asks for a worker and passes the worker's own socket along; the
server forks and answers with the process id. A fork shares the loaded packages, so a killed worker is replaced in
milliseconds. Neither ever reads the terminal, and both end when the caller does. POSIX only.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

FORK, KILL = b"F", b"K"
"""What the caller asks for: a new worker on the socket that comes along, or the end of the worker with that id."""
REQUEST = struct.Struct("<cq")
"""The request and a process id (0 with FORK). The answer is a process id alone."""
ANSWER = struct.Struct("<q")

LONGEST_EXTENSION = 3.0
"""Limits that a worker gets at most, on a machine so busy that it hardly runs."""
SELF_DESTRUCT_MARGIN_S = 1.0
"""A worker ends by its own alarm this long after that, in case the caller is no longer there to end it."""

DONE, MEMORY, FAILED = b"d", b"m", b"f"
"""First byte of a worker's reply: JSON of the value; out of memory; JSON of the name of the exception."""


def serve(server_fd: int) -> None:
    """Loads what the first message names, then forks and kills workers until the caller closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    server = socket.socket(fileno=server_fd)
    setup = pickle.loads(receive(server, ANSWER.unpack(receive(server, ANSWER.size))[0]))
    module_name, _, function_name = setup["function"].partition(":")
    try:
        logging.disable(logging.CRITICAL)
        function = getattr(importlib.import_module(module_name), function_name)
        for argument in setup["warm_up"]:
            _run(function, argument)
        report: dict[str, Any] = {"error": None, "modules": sorted({name.partition(".")[0] for name in sys.modules})}
    except Exception as error:  # the boundary of the process: the caller raises it
        report = {"error": f"{type(error).__name__}: {error}"[:1000], "modules": []}
    send(server, json.dumps(report).encode())
    if report["error"]:
        return
    gc.collect()
    gc.freeze()  # the collector of a fork doesn't touch, and so copy, what it shares
    _fork_workers(server, function, setup["memory_bytes"])


def _fork_workers(server: socket.socket, function: Callable[[Any], Any], memory_bytes: int) -> None:
    children: set[int] = set()
    try:
        while True:
            message, fds, _, _ = socket.recv_fds(server, REQUEST.size, 1)
            if len(message) < REQUEST.size:
                return
            request, pid = REQUEST.unpack(message)
            _reap(children)
            if request == FORK:
                pid = os.fork()
                if pid == 0:
                    server.close()
                    _work(fds[0], function, memory_bytes)
                children.add(pid)
                os.close(fds[0])
            elif pid in children:  # only the parent of a process knows that its id isn't somebody else's by now
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                children.discard(pid)
            server.sendall(ANSWER.pack(pid))
    except OSError:
        return
    finally:
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _reap(children: set[int]) -> None:
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def _work(fd: int, function: Callable[[Any], Any], memory_bytes: int) -> None:
    """Answers requests until the caller closes the socket. Never returns."""
    try:
        connection = Connection(fd)
        _limit_memory(memory_bytes)
        while True:
            timeout_s, argument = pickle.loads(connection.recv_bytes())
            signal.setitimer(signal.ITIMER_REAL, timeout_s * LONGEST_EXTENSION + SELF_DESTRUCT_MARGIN_S)
            reply = _run(function, argument)
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.send_bytes(reply)
            if reply == MEMORY:
                break
    except BaseException:
        pass
    finally:
        os._exit(0)


def _run(function: Callable[[Any], Any], argument: Any) -> bytes:
    try:
        return DONE + json.dumps(function(argument)).encode()
    except MemoryError:
        return MEMORY
    except (
        Exception
    ) as error:  # the boundary where a failed check becomes data; the message may be as long as the answer
        return FAILED + json.dumps(type(error).__name__).encode()


def _limit_memory(memory_bytes: int) -> None:
    """Bounds the address space at what is shared with the server plus ``memory_bytes``. Not enforced by macOS."""
    import resource  # POSIX only, and this module is imported everywhere

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = 0
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + memory_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def receive(server: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = server.recv(size - len(received))
        if not part:
            raise EOFError("the caller closed the socket")
        received += part
    return received


def send(server: socket.socket, message: bytes) -> None:
    server.sendall(ANSWER.pack(len(message)) + message)
