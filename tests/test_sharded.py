"""A state divided over two processes equals the whole one: value, gradient, certificate, steps; errors come to all ranks."""

import pytest

from processes import HERE, outcomes
from ranks_sharded import CHECKS


@pytest.fixture(scope="module")
def went(tmp_path_factory):
    return outcomes(HERE / "ranks_sharded.py", tmp_path_factory.mktemp("sharded"))


@pytest.mark.parametrize("check", CHECKS)
def test_divided_as_whole(went, check):
    assert went.get(check) == ["ok", "ok"], "\n".join(went.get(check, ["not reached"]))
