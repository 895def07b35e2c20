"""A record is whole or not there, reads back as it was, and nothing else is ever taken for one."""

import json
import math
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadygrad import files
from steadygrad.paper import records
from steadygrad.paper.engine.environment import environment
from steadygrad.paper.records import Record, dumps, loads, read, trial_id, write

RECORD = Record(
    "toy",
    {"seed": 3, "rate": 0.1, "method": "sum", "decay": None, "warm": True},
    {"loss": [1.5, 2.0]},
    None,
    {"seconds": 1.0},
    {},
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
KEYS = st.text().filter(lambda key: key != records.NONFINITE)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


@given(config=st.dictionaries(KEYS, SCALARS), result=st.dictionaries(KEYS, VALUES))
def test_reads_back_to_the_same_bits(config, result):
    record = Record("toy", config, result, None)
    text = dumps(record)
    back = loads(text)
    assert repr(back) == repr(record)  # repr, since NaN differs from itself
    assert back.trial == record.trial
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))


def test_nonfinite_numbers_are_written_as_strict_json(tmp_path):
    result = {"values": [math.nan, math.inf, -math.inf], "nested": {"a": (math.nan, 1)}}
    path = write(tmp_path, replace(RECORD, result=result))
    assert json.loads(path.read_text())["result"]["values"] == [{"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}]
    (back,) = read(tmp_path).records
    assert repr(back.result) == "{'values': [nan, inf, -inf], 'nested': {'a': [nan, 1]}}"


def test_trial_is_named_by_experiment_and_config_alone():
    assert RECORD.trial == replace(RECORD, result=None, error="no", measured={}, environment={"cores": 3}).trial
    assert RECORD.trial == trial_id("toy", dict(reversed(RECORD.config.items())))
    assert RECORD.trial != trial_id("toys", RECORD.config)
    assert RECORD.trial != trial_id("toy", RECORD.config | {"seed": 4})
    # Names of files that exist: a change here loses every run that people have.
    assert trial_id("toy", {"seed": 3, "rate": 0.1}) == "dec62ce8d8d7b8bc"


def test_write_replaces_and_leaves_nothing_else(tmp_path):
    path = write(tmp_path, replace(RECORD, result=None, error="first try"))
    assert write(tmp_path, RECORD) == path == tmp_path / "toy" / f"{RECORD.trial}.json"
    assert read(tmp_path).records == [RECORD]
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_interrupted_write_leaves_the_old_record(tmp_path, monkeypatch):
    path = write(tmp_path, RECORD)
    monkeypatch.setattr(files.os, "fsync", lambda handle: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, replace(RECORD, result={"loss": "new"}))
    assert read(tmp_path).records == [RECORD]
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def changed(**fields):
    return json.dumps(json.loads(dumps(RECORD)) | fields)


FOREIGN = {
    "half": (dumps(RECORD)[:-20], "only half of it"),
    "empty": ("", "only half of it"),
    "list": ("[]", "JSON object is expected"),
    "other JSON": ('{"loss": 1}', "the fields are"),
    "more fields": (changed(more=1), "the fields are"),
    "other schema": (changed(schema=2), "its schema is 2"),
    "schema of another type": (changed(schema=True), "its schema is True"),
    "config of another type": (changed(config=[1]), "config is of type list"),
    "neither result nor error": (changed(result=None), "either a result or an error"),
    "both result and error": (changed(error="no"), "either a result or an error"),
    "NaN literal": (dumps(RECORD).replace("1.5", "NaN"), "not strict JSON: NaN"),
    "bad float": (dumps(RECORD).replace("1.5", '{"$float": "1.5"}'), "expected nan, inf or -inf"),
    "edited config": (changed(config=RECORD.config | {"seed": 4}), "renamed, or edited by hand"),
    "other experiment": (changed(experiment="cora"), "a record of 'cora' in the folder of 'toy'"),
    "deep": ("[" * 100_000, "recursion"),
}


@pytest.mark.parametrize("content, reason", FOREIGN.values(), ids=FOREIGN.keys())
def test_foreign_content_is_reported_and_not_read(tmp_path, content, reason):
    path = write(tmp_path, RECORD)
    path.write_text(content)
    found = read(tmp_path)
    assert found.records == []
    (stranger,) = found.strangers
    assert stranger.path == path
    assert reason in stranger.reason


def test_foreign_files_are_reported_beside_the_records(tmp_path):
    path = write(tmp_path, RECORD)
    strange = {
        path.with_name("copy.json"): (dumps(RECORD).encode(), "renamed"),
        path.with_name("notes.txt"): (b"hello", "does not end in .json"),
        path.with_name(".abc.1-2.part"): (b"{", "being written, or was when its run was killed"),
        path.with_name("bytes.json"): (b"\xff\xfe\x00", "decode"),
        tmp_path / "loose.json": (dumps(RECORD).encode(), "outside the folder of an experiment"),
    }
    for name, (content, _) in strange.items():
        name.write_bytes(content)
    (path.parent / "folder.json").mkdir()
    found = read(tmp_path)
    assert found.records == [RECORD]
    reasons = {stranger.path: stranger.reason for stranger in found.strangers}
    assert "folder" in reasons.pop(path.parent / "folder.json")
    assert set(reasons) == set(strange)
    for name, (_, reason) in strange.items():
        assert reason in reasons[name]


def test_read_can_be_limited_to_one_experiment(tmp_path):
    write(tmp_path, RECORD)
    write(tmp_path, replace(RECORD, experiment="other"))
    assert [record.experiment for record in read(tmp_path).records] == ["other", "toy"]
    assert read(tmp_path, "toy").records == [RECORD]
    assert read(tmp_path, "none").records == read(tmp_path / "none").records == []


def test_bad_input(tmp_path):
    with pytest.raises(TypeError, match=r"result\['loss'\]\[1\] is a complex.*tolist"):
        write(tmp_path, replace(RECORD, result={"loss": [1, 1j]}))
    with pytest.raises(TypeError, match="the key 3; keys must be strings"):
        write(tmp_path, replace(RECORD, result={3: 1}))
    with pytest.raises(TypeError, match=r"the key '\$float'"):
        write(tmp_path, replace(RECORD, result={"$float": "nan"}))
    with pytest.raises(ValueError, match="either a result or an error"):
        write(tmp_path, replace(RECORD, result=None))
    with pytest.raises(ValueError, match="it names a folder"):
        write(tmp_path, replace(RECORD, experiment="../evil"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file; give the folder"):
        read(tmp_path / "file")


def test_environment_names_the_machine():
    found = environment()
    assert set(found) == {"steadygrad", "commit", "python", "torch", "platform", "cpu", "cores"}
    assert found["cores"] >= 1
    assert found["cpu"]


HEAD = '{"schema": 1, "experiment": "toy", "config": {"seed": 1}, '


@pytest.mark.parametrize(
    "content",
    [
        '{"schema": 1, "experiment": "toy", "config": {"a": {"$float": "nan", "b": 1}}, "result": {}, "error": null, "measured": {}, "environment": {}}',
        HEAD + '"result": {"$float": "nan"}, "error": null, "measured": {}, "environment": {}}',
        HEAD + '"result": {}, "error": null, "measured": {"$float": "nan"}, "environment": {}}',
    ],
    ids=["beside other keys", "as a result", "as measurements"],
)
def test_misplaced_nan_is_a_stranger(tmp_path, content):
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "aaaa.json").write_text(content)
    found = read(tmp_path)
    assert not found.records
    assert "not a record" in found.strangers[0].reason


def test_pipe_in_the_folder_is_a_stranger(tmp_path):
    (tmp_path / "toy").mkdir()
    os.mkfifo(tmp_path / "toy" / "pipe.json")
    assert read(tmp_path).strangers[0].reason == "not a regular file"
