"""Work spread over processes, which all end when the command ends, however it ends."""

import os
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, connection, get_context, parent_process
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def work_off(
    work: Callable[[Item], Answer], items: Sequence[Item], jobs: int
) -> Generator[tuple[Item, Answer], None, None]:
    """Yield each item with what `work` made of it, as it gets done, on up to `jobs` processes.

    One job, or one item, is done in this process. Where the caller stops early, or `work` raises,
    the processes are stopped and what is under way is dropped; what was yielded stays.
    Items are begun in their order.
    """
    if jobs == 1 or len(items) < 2:
        for item in items:
            yield item, work(item)
        return
    others = set(active_children())
    # spawn: a fork of a process that has threads (BLAS, a progress bar) may hang
    pool = ProcessPoolExecutor(
        min(jobs, len(items)), mp_context=get_context("spawn"), initializer=_start_worker
    )
    finished = False
    try:
        futures = {pool.submit(work, item): item for item in items}
        for future in as_completed(futures):
            item = futures.pop(future)
            try:
                answer = future.result()
            except Exception as error:  # from another process: its traceback names no item
                error.add_note(f"while working on {item}")
                raise
            yield item, answer
        finished = True
    finally:
        workers = set(active_children()) - others
        pool.shutdown(wait=finished, cancel_futures=True)
        if not finished:
            for worker in workers:
                worker.terminate()


def _start_worker() -> None:
    """Leave Ctrl-C to the parent, and go when the parent is gone, even if it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_go_with_parent, daemon=True).start()


def _go_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
