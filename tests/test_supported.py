"""A torch that is missing, too old or broken is said in words, with what to install."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from steadygrad import supported

ROOT = Path(__file__).parents[1]


def imported(folder, version):
    """What `import steadygrad` says with a torch of this version that holds nothing else; with none at all for None."""
    blocked = "import sys; sys.modules['torch'] = None; " if version is None else ""
    if version is not None:
        (folder / "torch.py").write_text(f"__version__ = {version!r}\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])}
    code = f"{blocked}import steadygrad"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "version, words",
    {
        None: "ImportError: steadygrad needs torch .*, and no torch is installed here. Install it with: pip install",
        "2.5.1+cpu": "ImportError: steadygrad needs torch .*; this is torch 2.5.1\\+cpu. Install it with: pip install",
        "99.0.0": "ImportError: steadygrad was tested with torch .* and cannot be imported with torch 99.0.0: .*Install it with",
    }.items(),
)
def test_import_without_a_torch_that_works(tmp_path, version, words):
    assert re.match(words, imported(tmp_path, version))


def test_what_is_declared_is_what_was_tested():
    declared = re.search(r'"torch>=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    pinned = re.search(r"^torch==([\d.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    major, minor = supported.version_of(supported.TESTED)
    assert declared.groups() == (supported.TESTED, f"{major}.{minor + 1}")
    assert supported.version_of(pinned[1]) == (major, minor)
