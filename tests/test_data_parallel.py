"""Data parallelism under torchrun: the same losses as one process, and a rank that fails ends the job."""

import pytest

from processes import HERE, outcomes, torchrun
from ranks_data_parallel import CHECKS


@pytest.fixture(scope="module")
def went(tmp_path_factory):
    return outcomes(HERE / "ranks_data_parallel.py", tmp_path_factory.mktemp("data_parallel"))


@pytest.mark.parametrize("check", CHECKS)
def test_as_one_process(went, check):
    assert went.get(check) == ["ok", "ok"], "\n".join(went.get(check, ["not reached"]))


@pytest.mark.parametrize(
    "what, words",
    [
        ("data_parallel", "SteadyStateError: the search for the steady state"),
        ("divided", "KeyError: 'the third call of F on rank 1'"),
    ],
)
def test_a_rank_that_raises_ends_the_job(what, words):
    job = torchrun(HERE / "ranks_failing.py", what)
    assert job.code != 0
    assert words in job.printed, job.printed[-3000:]
    assert "rank1" in job.printed.replace(" ", "").replace(":", ""), job.printed[-3000:]
