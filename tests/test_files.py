"""Files are written whole or not at all."""

import os

import pytest

from steadygrad import files
from steadygrad.files import write_atomically


@pytest.mark.parametrize("content", [b"new", lambda file: file.write(b"new")], ids=["bytes", "a function"])
def test_a_file_takes_the_place_of_the_old_one(tmp_path, content):
    path = tmp_path / "deep" / "file"
    for _ in range(2):
        write_atomically(path, content)
        assert path.read_bytes() == b"new"
        assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("beside", [None, ".fixed"])
def test_a_writer_that_fails_leaves_the_old_one_and_nothing_else(tmp_path, beside):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail, None if beside is None else tmp_path / beside)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_unfinished_file_has_the_name_that_is_asked_for(tmp_path):
    seen = []
    write_atomically(tmp_path / "file", lambda file: seen.extend(tmp_path.iterdir()), tmp_path / ".beside")
    assert seen == [tmp_path / ".beside"]


def test_text_and_bytes_replace_what_was_there(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "é")
    assert path.read_bytes() == "é".encode()
    write_atomically(path, b"\0new")
    assert path.read_bytes() == b"\0new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(files.os, broken, lambda *arguments: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]
