"""What a trial costs beside its own work, in local processes and on a Ray of one node: python tools/ray_overhead.py.

Calls that take no time, after workers have started, in turns; the medians and their ratio. Processor time is that of the
driver's thread, since elapsed time depends on what else the machine does.
"""

import statistics
import time

from steadygrad.calls import Call, Ray, crew

TRIALS, ROUNDS, WORKERS = 100, 5, 1


def nothing(say, number):
    """A call that does nothing but tell that it is there, as a trial does."""
    say(number)
    return {"number": number}


def measure(workforce):
    """Seconds elapsed, and seconds of this thread's processor time, a call."""
    began, worked = time.perf_counter(), time.thread_time()
    waiting = [Call(str(number), nothing, (number,)) for number in range(TRIALS)]
    under_way = 0
    while waiting or under_way:
        while waiting and workforce.room:
            workforce.start(waiting.pop())
            under_way += 1
        under_way -= sum(type(event).__name__ == "Returned" for _, event in workforce.wait(0.5))
    return (time.perf_counter() - began) / TRIALS, (time.thread_time() - worked) / TRIALS


def main():
    start = time.perf_counter()
    with crew(WORKERS, None) as local:
        measure(local)
        first = time.perf_counter() - start
        start = time.perf_counter()
        with crew(WORKERS, Ray()) as ray:
            measure(ray)
            second = time.perf_counter() - start
            rounds = [(*measure(local), *measure(ray)) for _ in range(ROUNDS)]
    here, work_here, there, work_there = (statistics.median(column) for column in zip(*rounds, strict=True))
    for what, one, other in (
        (f"start and {TRIALS} calls", first, second),
        ("a call, elapsed", here, there),
        ("a call, the driver's thread", work_here, work_there),
    ):
        print(f"{what}: local {1e3 * one:.2f} ms, Ray {1e3 * other:.2f} ms, ratio {other / one:.1f}")


if __name__ == "__main__":
    main()
