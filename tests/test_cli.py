"""The command line: what it prints, what it refuses, and how it ends."""

import io
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from rich.console import Console

import steadygrad.paper.cli.progress as progress
from steadygrad.paper.cli import main, welcome
from steadygrad.paper.cli.arguments import attribute_docstrings, flags, parse, trials
from steadygrad.paper.experiments import EXPERIMENTS
from steadygrad.paper.experiments.experiment import Experiment, Preset, settings
from steadygrad.paper.records import Record, Stranger, read, write
from toy import TOY, Toy, seeds


@pytest.fixture(autouse=True)
def only_the_toy(monkeypatch):
    for name in list(EXPERIMENTS):
        monkeypatch.delitem(EXPERIMENTS, name)
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)


def done(config, **result):
    return Record("toy", settings(config), result, None)


def test_run_prints_plain_lines_when_piped(tmp_path, capsys):
    """One worker process; the second run finds everything done and starts none."""
    out = tmp_path / "runs"
    words = ["run", "toy", "--preset", "smoke", "--out", str(out), "--workers", "1"]
    assert main([*words, "--method", "fail", "--seed", "7"]) == 1
    text = capsys.readouterr().out.splitlines()
    trial = TOY.trial(Toy(method="fail", seed=7))
    assert text == [
        "toy: the 3 trials of smoke, set to method=fail seed=7 in each (--only chooses among them): 1 to have",
        "toy: 0/1",
        f"toy: trial {trial} failed: RuntimeError: this trial was made to fail",
        "toy: 1/1 (1 failed)",
        "toy: 0 done, 0 were done already, 1 failed (their records say why; the same command tries them again)",
        f"records are in {out}; make the report with: steadygrad report --runs {out}",
    ]
    for config in seeds(3):
        write(out, done(config, total=1.0))
    (out / "toy" / "half.json").write_text("{")
    assert main(words) == 0
    text = capsys.readouterr().out.splitlines()
    assert text[0].startswith(f"toy: not read as a result: {out / 'toy' / 'half.json'} (not JSON, or only half of it")
    assert text[1:3] == ["toy: 3/3, 3 sums", "toy: 0 done, 3 were done already, 0 failed"]


def test_without_arguments_it_says_what_to_do_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    text = capsys.readouterr().out
    assert "no records in runs/ yet, so next is: steadygrad run all --preset smoke --out runs\n" in text
    assert max(map(len, text.splitlines())) <= 100
    write(tmp_path / "runs", done(Toy(seed=1), total=1.0))
    assert main([]) == 0
    assert "runs/ has 1 records, so next is: steadygrad report --runs runs --out report.html\n" in capsys.readouterr().out


def test_the_code_of_the_welcome_runs(capsys):
    exec(textwrap.dedent(welcome.CODE), {})
    assert "CONVERGED" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["list"], ["--help"]], ids=" ".join)
def test_what_answers_at_once_imports_nothing_that_takes_its_time(words):
    code = f"""
import sys
from steadygrad.paper.cli import main, welcome
sys.argv = ["steadygrad", *{words}]
assert main() == 0
print(sorted({{"sklearn", "scipy", "pandas", "matplotlib", "jinja2", "gradio", "ray"}} & set(sys.modules)))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]"


def test_dry_run_says_what_is_done_and_touches_nothing(tmp_path, capsys):
    out = tmp_path / "runs"
    write(out, done(Toy(seed=1), total=1.0))
    write(out, Record("toy", settings(Toy(seed=2)), None, "it failed"))
    before = sorted(out.rglob("*"))
    assert main(["run", "toy", "--out", str(out), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"toy: 2 of 3 trials would run, 1 are done in {out}",
        "trial             state          seed",
        f"{TOY.trial(Toy(seed=0))}  to run         0",
        f"{TOY.trial(Toy(seed=1))}  done           1",
        f"{TOY.trial(Toy(seed=2))}  failed, again  2",
    ]
    assert sorted(out.rglob("*")) == before
    assert main(["run", "all", "--out", str(tmp_path / "new"), "--dry-run"]) == 0
    assert "3 of 3 trials would run" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


def test_list_shows_presets_trials_and_time(capsys):
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "experiment  preset    trials  expected time, two cores  about",
        "toy         smoke     3       3 s                       three sums",
        "toy         standard  9       30 s                      eight slow sums, and a failure",
        "toy         paper     100     60 min                    never ends",
    ]


def test_every_config_field_is_a_flag_with_its_help(capsys):
    assert main(["run", "toy", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for flag, words in {
        "--method {sum,": "What the trial does.",
        "--steps INT": "How many numbers are added.",
        "--rate FLOAT": "What each number is multiplied with.",
        "--seconds FLOAT": "How long a step takes.",
        "--seed INT": "Start of the random numbers.",
    }.items():
        assert flag in text
        assert words in text


def test_flags_change_their_field_in_every_trial_and_merge_what_becomes_equal():
    asked = parse(["run", "toy", "--preset", "standard", "--steps", "10", "--rate", "1e-3"], EXPERIMENTS)
    assert asked.experiments == ("toy",)
    assert asked.changes == {"steps": 10, "rate": 1e-3}
    changed = trials(TOY, asked.preset, asked.changes)
    assert changed[:2] == [Toy(seed=0, seconds=0.1, steps=10, rate=1e-3), Toy(seed=1, seconds=0.1, steps=10, rate=1e-3)]
    assert len(changed) == 9
    assert trials(TOY, "standard", {"seed": 3}) == [Toy(seed=3, seconds=0.1), Toy(seed=3, method="fail")]
    assert parse(["run", "all"], EXPERIMENTS).changes == {}


def test_only_chooses_among_the_trials_before_flags_change_them(tmp_path, capsys):
    kept = trials(TOY, "standard", {}, ["method=sum", "seed=2,3"])
    assert kept == [Toy(seed=2, seconds=0.1), Toy(seed=3, seconds=0.1)]
    assert trials(TOY, "standard", {"seed": 9}, ["method=fail"]) == [Toy(seed=9, method="fail")]
    words = ["run", "toy", "--preset", "standard", "--only", "method=sum", "seed=2,3", "--steps", "4", "--dry-run"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert (
        first
        == "toy: the 9 trials of standard with method=sum seed=2,3, set to steps=4 in each (--only chooses among them): 2 to have"
    )
    assert second.startswith("toy: 2 of 2 trials would run")


@dataclass(frozen=True)
class Base:
    seed: int = 0
    """From the base."""


@dataclass(frozen=True)
class Special(Base):
    warm: bool = False
    """Whether to
    start warm.

    And more."""
    decay: float | None = None
    "No decay with None."
    silent: int = 1


def test_flags_of_optional_boolean_and_inherited_fields():
    texts = attribute_docstrings(Special)
    assert texts == {"seed": "From the base.", "warm": "Whether to start warm.\n\nAnd more.", "decay": "No decay with None."}
    special = Experiment("special", "", Special, {"smoke": Preset((Special(decay=0.5),), 1.0, "")}, TOY.run, TOY.headline)
    known = {"special": special}
    assert parse(["run", "special", "--warm", "True", "--decay", "None", "--seed", "2"], known).changes == {
        "warm": True,
        "decay": None,
        "seed": 2,
    }
    assert trials(special, "smoke", {"decay": None}) == [Special(decay=None)]


def test_config_field_that_is_an_option_of_every_run_is_refused():
    @dataclass(frozen=True)
    class Clash:
        workers: int = 1
        seed: int = 0

    with pytest.raises(ValueError, match="has the field 'workers'"):
        flags(Experiment("clash", "", Clash, {}, TOY.run, TOY.headline))


BAD = {
    "verb": (["walk"], "walk"),
    "experiment": (["run", "tay"], "toy, all"),
    "preset": (["run", "toy", "--preset", "huge"], "'smoke', 'standard'"),
    "type": (["run", "toy", "--seed", "x"], "--seed"),
    "choice": (["run", "toy", "--method", "nothing"], "--method"),
    "flag": (["run", "toy", "--sed", "3"], "--seed"),
    "flag of one experiment": (["run", "all", "--seed", "3"], "--seed"),
    "value": (["run", "toy", "--steps", "-1"], "steps is -1; it must not be negative."),
    "only": (["run", "toy", "--only", "sed=3"], "--only sed=3: give FIELD=VALUE, with a setting of toy: method, steps, rate,"),
    "only what": (["run", "toy", "--only", "seed"], "--only seed: give FIELD=VALUE"),
    "only nothing": (["run", "toy", "--only", "seed=7"], "no trial has seed = 7; there are those with 0, 1, 2."),
    "only in part": (["run", "toy", "--only", "seed=1,9"], "no trial has seed = 9; there are those with 0, 1, 2."),
    "workers": (["run", "toy", "--workers", "0"], "--workers is 0; at least one process"),
    "engine": (["run", "toy", "--engine", "cloud"], "--engine"),
    "address of no cluster": (["run", "toy", "--engine", "ray", "--address", "there"], "give host:port, such as 10.0.0.1:6379"),
    "Ray client": (["run", "toy", "--engine", "ray", "--address", "ray://there:10001"], "ray job submit"),
    "nothing reserved": (["run", "toy", "--engine", "ray", "--cpus", "0"], "cpus and gpus are both 0"),
    "address without Ray": (["run", "toy", "--address", "auto"], "--address auto is for --engine ray"),
    "gpus without Ray": (["run", "toy", "--gpus", "1"], "--gpus 1.0 is for --engine ray"),
    "out": (["run", "toy", "--out", __file__], "is a file; give a folder"),
    "runs": (["report", "--runs", "no-such-folder"], "no-such-folder is not a folder"),
}


@pytest.mark.parametrize("words, advice", BAD.values(), ids=BAD.keys())
def test_bad_usage_is_explained(words, advice, capsys):
    assert main(words) == 2
    said = capsys.readouterr()
    assert advice in " ".join(said.err.replace("│", " ").split())
    assert said.out == ""


def test_preset_that_one_experiment_lacks(monkeypatch, capsys):
    monkeypatch.setitem(EXPERIMENTS, "short", Experiment("short", "", Toy, {"smoke": Preset((), 0.0, "")}, TOY.run, TOY.headline))
    assert main(["run", "all", "--preset", "paper"]) == 2
    assert "short has no preset 'paper'; it has smoke." in capsys.readouterr().err


@pytest.mark.parametrize(
    "module, hidden", [("steadygrad.paper.cli.arguments", "tyro"), ("steadygrad.paper.cli.progress", "rich.progress")]
)
def test_missing_extras_are_named(monkeypatch, capsys, module, hidden):
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, hidden, None)
    assert main(["list"]) == 2
    assert f"{hidden} is not installed; the experiments need it: pip install 'steadygrad[experiments]'" in capsys.readouterr().err


def test_full_disk_is_explained(monkeypatch, tmp_path, capsys):
    import steadygrad.paper.engine as engine

    def refuse(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine, "run", refuse)
    assert main(["run", "toy", "--out", str(tmp_path)]) == 2
    assert "No space left on device. Put that right; the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize("problems, code", [([], 0), (["hopfield: no figure"], 1)])
def test_report_says_where_the_page_is(monkeypatch, tmp_path, capsys, problems, code):
    page = tmp_path / "page.html"
    written = SimpleNamespace(page=page, records=12, strangers=[Stranger(tmp_path / "x", "is strange")], problems=problems)
    calls = []
    monkeypatch.setattr("steadygrad.paper.report.page.write", lambda folder, out: calls.append((folder, out)) or written)
    assert main(["report", "--runs", str(tmp_path), "--out", str(page)]) == code
    assert calls == [(tmp_path, page)]
    assert capsys.readouterr().out.splitlines() == [
        f"not read as a result: {tmp_path / 'x'} (is strange)",
        *(f"missing in the report: {problem}" for problem in problems),
        f"12 records, report: {page}",
    ]


def test_report_of_an_empty_folder_is_refused(tmp_path, capsys):
    assert main(["report", "--runs", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    assert "no report was made: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bar_shows_counts_time_left_and_the_running_result(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    display = progress.live(console)
    bar = progress.Bar(TOY, display)

    def fields():
        (task,) = display.tasks
        return task.completed, task.fields["counts"], task.fields["left"], task.fields["words"]

    bar.begin(5, [done(Toy())], [])
    assert fields() == (1, "1/5", "", "1 sums")
    clock.now += 30
    bar.step("a", 0.5, "sum 3")
    bar.tick()
    assert fields() == (1.5, "1/5", "4 min left", "1 sums · sum 3")  # 30 s for half a trial, 3.5 are left
    bar.finished(Record("toy", settings(Toy(seed=1)), None, "Traceback\nValueError: [red] no"))
    assert fields()[1] == "2/5 (1 failed)"
    for seed in (2, 3, 4):
        bar.finished(done(Toy(seed=seed)))
    bar.pace.running.clear()
    bar.tick()
    assert fields() == (5, "5/5 (1 failed)", "done", "4 sums")
    assert "failed: ValueError: [red] no" in console.file.getvalue()
    console.print(display.get_renderable())
    assert "5/5 (1 failed) done 4 sums" in console.file.getvalue()


def test_headline_that_fails_does_not_stop_the_run(capsys):
    lines = progress.Lines(replace(TOY, headline=lambda records: str(1 / 0)), Console())
    lines.begin(1, [], [])
    lines.finished(done(Toy()))
    assert capsys.readouterr().out.splitlines()[-1] == "toy: 1/1, no headline: ZeroDivisionError('division by zero')"


def test_lines_come_once_a_minute_in_long_trials(monkeypatch, capsys):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
    lines = progress.Lines(TOY, Console())
    lines.begin(2, [], [])
    for _ in range(121):
        clock.now += 1
        lines.step("a", clock.now / 1000, f"loss {clock.now}")
        lines.tick()
    assert capsys.readouterr().out.splitlines() == ["toy: 0/2", "toy: 0/2, 32 min left, loss 61.0"]


@pytest.mark.parametrize(
    "seconds, words", [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5400, "90 min"), (7200, "2.0 h"), (780120, "9 days")]
)
def test_durations_in_words(seconds, words):
    assert progress.duration(seconds) == words


def test_two_presets_share_their_records(tmp_path, capsys):
    """A trial is its config: a record made by one preset counts in another."""
    for config in TOY.presets["smoke"].trials:
        write(tmp_path, done(config, total=1.0))
    assert (
        main(["run", "toy", "--preset", "standard", "--seconds", "0", "--method", "sum", "--dry-run", "--out", str(tmp_path)])
        == 0
    )
    assert "5 of 8 trials would run, 3 are done" in capsys.readouterr().out
    assert len(read(tmp_path).records) == 3


EVIL = "x\x1b]0;owned\x07\x1b[2J\x9b31m"


def test_names_of_files_cannot_command_the_terminal(tmp_path, capsys):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / f"{EVIL}.txt").write_text("")
    write(tmp_path, done(Toy(), total=1.0))
    assert main(["run", "toy", "--dry-run", "--out", str(tmp_path)]) == 0
    assert main(["report", "--runs", str(tmp_path), "--out", str(tmp_path / f"{EVIL}.html")]) == 0
    assert main(["report", "--runs", str(tmp_path / EVIL)]) == 2
    said = capsys.readouterr()
    assert not {letter for letter in said.out + said.err if not letter.isprintable()} - {"\n"}
    assert said.out.count(r"x\x1b]0;owned\x07\x1b[2J\x9b31m.txt") == 2
    assert r"x\x1b]0;owned" in said.err


def test_notes_of_trials_cannot_command_the_terminal():
    console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    display = progress.live(console)
    bar = progress.Bar(replace(TOY, headline=lambda records: EVIL), display)
    bar.begin(1, [done(Toy())], [])
    bar.finished(Record("toy", settings(Toy(seed=1)), None, f"ValueError: {EVIL}"))
    console.print(display.get_renderable())
    written = console.file.getvalue()
    assert "\x1b]0;" not in written
    assert "\x9b" not in written
    assert r"x\x1b]0;owned" in written
