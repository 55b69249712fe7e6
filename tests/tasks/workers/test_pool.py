from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isentrope.tasks.workers import WorkerError, WorkerPool

WORK = "support.work:work"


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(WORK, size=2, memory_bytes=256 * 2**20) as made:
        yield made


def statuses(pool: WorkerPool, *requests: tuple[str, object], timeout_s: float = 30.0) -> list[str]:
    return [reply.status for reply in pool.map(requests, timeout_s=timeout_s)]


def test_replies_come_in_order(pool: WorkerPool) -> None:
    replies = pool.map([("sleep", 0.05), *(("echo", index) for index in range(20))], timeout_s=30.0)
    assert [reply.value for reply in replies] == [0.05, *range(20)]
    assert all(reply.status == "done" for reply in replies)
    assert pool.map([], timeout_s=1.0) == []


def test_an_overrun_is_killed_and_replaced(pool: WorkerPool) -> None:
    before, start = pool.replaced, time.monotonic()
    requests = [("echo", 1), ("sleep", 60), ("echo", 2), ("sleep", 60), ("echo", 3)]
    found = statuses(pool, *requests, timeout_s=0.3)
    assert found[1] == found[3] == "timeout" and pool.replaced >= before + 2
    assert time.monotonic() - start < 20
    assert statuses(pool, ("echo", 1), ("echo", 2)) == ["done", "done"]


def test_one_that_never_yields_is_killed_too(pool: WorkerPool) -> None:
    assert statuses(pool, ("spin", None), timeout_s=0.3) == ["timeout"]


def test_memory_is_bounded(pool: WorkerPool) -> None:
    assert statuses(pool, ("fill", 10 * 2**20), ("fill", 2**30), ("echo", 1)) == ["done", "memory", "done"]


def test_a_crash_is_one_reply(pool: WorkerPool) -> None:
    assert statuses(pool, ("echo", 1), ("crash", None), ("echo", 2)) == ["done", "died", "done"]


def test_an_exception_is_named_and_the_worker_goes_on(pool: WorkerPool) -> None:
    failed, done = pool.map([("raise", "x" * 10**6), ("echo", 1)], timeout_s=30.0)
    assert (failed.status, failed.value) == ("failed", "ValueError")
    assert done.value == 1


def test_a_worker_ignores_ctrl_c(pool: WorkerPool) -> None:
    assert pool.map([("interrupt", None)], timeout_s=30.0)[0].value == "ignored"


def test_a_worker_killed_from_outside_is_replaced(pool: WorkerPool) -> None:
    for worker in list(pool._idle):
        os.kill(worker.pid, signal.SIGKILL)
    assert statuses(pool, *[("echo", 1)] * 4) == ["done"] * 4


def test_a_killed_server_is_started_again(pool: WorkerPool) -> None:
    statuses(pool, ("echo", 1))
    assert pool._process is not None
    os.kill(pool._process.pid, signal.SIGKILL)
    pool._process.wait()
    assert statuses(pool, ("spin", None), ("echo", 1), ("echo", 2), timeout_s=0.5)[1:] == ["done", "done"]


def test_threads_share_the_workers(pool: WorkerPool) -> None:
    def run(thread: int) -> list[object]:
        return [reply.value for reply in pool.map([("echo", (thread, index)) for index in range(30)], timeout_s=30.0)]

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(run, range(6)))
    assert found == [[[thread, index] for index in range(30)] for thread in range(6)]


def test_workers_are_renewed() -> None:
    with WorkerPool(WORK, size=1, calls_per_worker=3) as pool:
        pids = [reply.value for reply in pool.map([("pid", None)] * 9, timeout_s=30.0)]
        assert len(set(pids)) == 3


def test_workers_load_neither_torch_nor_the_policy() -> None:
    with WorkerPool(WORK, size=1) as pool:
        (reply,) = pool.map([("modules", None)], timeout_s=30.0)
    assert "isentrope" in reply.value and "support" in reply.value
    assert not {"torch", "numpy", "transformers", "pytest"} & set(reply.value)


def test_processes_end_with_the_pool() -> None:
    pool = WorkerPool(WORK, size=2)
    pids = [reply.value for reply in pool.map([("pid", None)] * 2, timeout_s=30.0)]
    assert pool._process is not None
    pool.close()
    assert all(gone(pid) for pid in pids)
    assert [reply.value for reply in pool.map([("echo", 5)], timeout_s=30.0)] == [5], "the next call starts new ones"
    pool.close()
    pool.close()


def test_what_cannot_be_started() -> None:
    with WorkerPool("support.no_such_module:work") as pool, pytest.raises(WorkerError, match="No module named"):
        pool.map([("echo", 1)], timeout_s=1.0)


def gone(pid: int) -> bool:
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if (
            Path(f"/proc/{pid}/stat").exists()
            and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        ):
            return True
        time.sleep(0.05)
    return False


SCRIPT = """
import os, signal, sys, threading, time
sys.path[:0] = {path!r}
from isentrope.tasks.workers import WorkerPool
pool = WorkerPool("support.work:work", size=1)
{body}
"""


def run_script(body: str) -> str:
    path = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3] / "src")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(path=path, body=body)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_a_fork_has_workers_of_its_own() -> None:
    out = run_script(
        "first = pool.map([('pid', None)], timeout_s=60.0)[0].value\n"
        "child = os.fork()\n"
        "second = pool.map([('pid', None)], timeout_s=60.0)[0].value\n"
        "if child == 0:\n"
        "    print(second != first, flush=True); pool.close(); os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(second == first, pool.map([('echo', 7)], timeout_s=60.0)[0].value)\n"
    )
    assert out.split() == ["True", "True", "7"]


def test_processes_end_with_a_killed_caller() -> None:
    out = run_script(
        "pid = pool.map([('pid', None)], timeout_s=60.0)[0].value\n"
        "print(pid, pool._process.pid, flush=True)\n"
        "threading.Thread(target=lambda: pool.map([('spin', None)], timeout_s=600.0), daemon=True).start()\n"
        "time.sleep(0.3)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    pids = [int(word) for word in out.split()]
    assert len(pids) == 2 and all(gone(pid) for pid in pids)


def test_an_interrupted_call_leaves_no_stale_reply() -> None:
    out = run_script(
        "pool.map([('echo', 0)], timeout_s=60.0)\n"
        "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "try:\n"
        "    pool.map([('sleep', 60)], timeout_s=100.0)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "print(pool.map([('echo', 7)], timeout_s=60.0)[0].value)\n"
    )
    assert out.split() == ["interrupted", "7"]


def test_an_exit_without_close_says_nothing() -> None:
    assert run_script("print(pool.map([('echo', 7)], timeout_s=60.0)[0].value)") == "7\n"


def test_a_waiting_thread_gets_a_worker() -> None:
    with WorkerPool(WORK, size=1) as pool:
        results: list[object] = []
        long = threading.Thread(target=lambda: pool.map([("sleep", 0.02)] * 20, timeout_s=30.0))
        long.start()
        results.append(pool.map([("echo", 1)], timeout_s=30.0)[0].value)
        long.join()
    assert results == [1]
