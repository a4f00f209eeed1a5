"""`moac data kuairand` from nothing to a dataset, and what it says when something is wrong."""

import json
import os
import shutil
import signal
import subprocess

import pytest

from moac.cli import main as cli
from tests.end_to_end.conftest import MOAC
from tests.helpers.kuairand import generated

LOG, EARLY = "log_standard_4_22_to_5_08_pure.csv", "log_standard_4_08_to_4_21_pure.csv"
USERS, VIDEOS = "user_features_pure.csv", "video_features_basic_pure.csv"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("source"), rows=600, num_users=60, num_videos=40, random_rows=60)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Rows that take a while, and some megabytes."""
    return generated(tmp_path_factory.mktemp("large"), rows=60_000, num_users=2000)


@pytest.fixture
def copy(source, tmp_path):
    """A copy that a test may spoil, and the folder it is in."""
    shutil.copytree(source / "data", tmp_path / "src")
    return tmp_path / "src"


def build(source, *options):
    return cli.main(["data", "kuairand", "build", str(source), "--actions", "10", *map(str, options)])


def test_from_nothing_to_a_description(tmp_path, capsys):
    def moac(*arguments):
        assert cli.main(["data", "kuairand", *map(str, arguments)]) == 0
        return capsys.readouterr()

    made = moac("generate", "--rows", 2000, "--out", tmp_path, "--seed", 3, "--json")
    folder = json.loads(made.out.splitlines()[-1])["folder"]
    options = ("--out", tmp_path / "data", "--actions", 20, "--memory-limit", "1GB", "--json")
    done = moac("build", folder, *options)
    summary = json.loads(done.out)
    assert summary["logs"]["standard"]["rows_read"] >= 2000
    assert summary["absent"] == []
    assert "sorting users" in done.err
    assert cli.main(["data", "describe", str(tmp_path / "data"), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (tmp_path / "data" / "figures" / "description.png").read_bytes().startswith(b"\x89PNG")
    assert described["rows"] == summary["rows"]
    assert described["content"] == summary["content"]
    assert set(described["splits"]) == {"train", "validation", "test"}


def test_no_command_but_those_that_learn_imports_jax(source, tmp_path):
    out = str(tmp_path / "data")
    script = (
        "import sys\nfrom moac.cli.main import main\n"
        f"code = main(['data', 'kuairand', 'build', {str(source)!r}, '--out', {out!r}, '--actions', '5'])\n"
        f"code += main(['data', 'describe', {out!r}])\n"
        "sys.exit(code + 10 * ('jax' in sys.modules))"
    )
    done = subprocess.run([*MOAC[:2], script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for word in ("Click", "WatchTime", "share of amounts", "validation", "random exposure", "fewer than 30 test rows"):
        assert word in done.stdout


def without(path, column):
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]
    at = header.index(column)
    path.write_text("".join(",".join(row[:at] + row[at + 1 :]) + "\n" for row in [header, *rows]))


def replace_field(path, line, column, value):
    rows = [text.split(",") for text in path.read_text().splitlines()]
    rows[line - 1][rows[0].index(column)] = value
    path.write_text("\n".join(map(",".join, rows)) + "\n")


def test_a_log_that_is_absent_is_named_and_no_error(copy, tmp_path, capsys):
    (copy / EARLY).unlink()
    assert build(copy, "--out", tmp_path / "data") == 0
    assert f"absent: {EARLY}\n" in capsys.readouterr().err
    assert json.loads((tmp_path / "data" / "manifest.json").read_text())["absent"] == [EARLY]


def no_users(copy):
    (copy / USERS).unlink()


def no_videos(copy):
    (copy / VIDEOS).unlink()


def no_logs(copy):
    for path in copy.glob("log_*"):
        path.unlink()


def a_column_less(copy):
    without(copy / LOG, "tab")


def a_feature_less(copy):
    without(copy / VIDEOS, "tag")


def cut_in_the_last_line(copy):
    text = (copy / LOG).read_bytes()
    (copy / LOG).write_bytes(text[:-20])


def cut_in_the_last_number(copy):
    text = (copy / LOG).read_bytes()
    (copy / LOG).write_bytes(text.rstrip(b"\n"))


def a_short_line(copy):
    lines = (copy / LOG).read_text().splitlines()
    lines[6] = lines[6].rsplit(",", 3)[0]
    (copy / LOG).write_text("\n".join(lines) + "\n")


def a_word(copy):
    replace_field(copy / LOG, 17, "video_id", "cat")


def a_number_too_large(copy):
    replace_field(copy / LOG, 4, "user_id", "4294967296")


def a_gap(copy):
    replace_field(copy / LOG, 9, "tab", "")


def a_word_among_features(copy):
    replace_field(copy / VIDEOS, 5, "video_duration", "long")


def a_play_time_below_zero(copy):
    replace_field(copy / LOG, 6, "play_time_ms", "-5")


def one_line_of_50_megabytes(copy):
    header = (copy / LOG).read_bytes().partition(b"\n")[0]
    (copy / LOG).write_bytes(header + b"\n" + b"1" * 50_000_000 + b"\n")


def a_user_nobody_knows(copy):
    replace_field(copy / LOG, 12, "user_id", "777777")


def a_user_twice(copy):
    lines = (copy / USERS).read_text().splitlines()
    (copy / USERS).write_text("\n".join([*lines, lines[3]]) + "\n")


def no_rows(copy):
    header = (copy / LOG).read_text().splitlines()[0]
    (copy / LOG).write_text(header + "\n")


def nothing(copy):
    (copy / LOG).write_text("")


MISTAKES = [
    (no_users, f"{USERS} (user features) is missing in "),
    (no_videos, f"{VIDEOS} (basic video features) is missing in "),
    (no_logs, f"{LOG} (log) is missing in "),
    (a_column_less, f"{LOG} must have the column `tab`, which is missing"),
    (a_feature_less, f"{VIDEOS} must have the column `tag`, which is missing"),
    (cut_in_the_last_line, f"{LOG} must end with a new line"),
    (cut_in_the_last_number, f"{LOG} must end with a new line"),
    (a_short_line, f"{LOG}, row 7: Expected Number of Columns: 19 Found: 16"),
    (a_word, f'{LOG}, row 17: Error when converting column "video_id". Could not convert string "cat"'),
    (a_number_too_large, f'{LOG}, row 4: Error when converting column "user_id"'),
    (a_gap, f'{LOG}, row 9: Error when converting column "tab"'),
    (a_word_among_features, f'{VIDEOS}, row 5: Error when converting column "video_duration"'),
    (a_play_time_below_zero, f"{LOG}, row 6: `play_time_ms` must be in [0, 2147483647], got '-5'"),
    (one_line_of_50_megabytes, f"{LOG} must have lines of at most 1048576 bytes"),
    (a_user_nobody_knows, f"{USERS} must have user 777777 of the log, who is missing"),
    (a_user_twice, f"{USERS}: `user_id` 2 must occur once, got it again"),
    (no_rows, f"{LOG} must hold rows, got none"),
    (nothing, f"{LOG} must hold rows, got an empty file"),
]


@pytest.mark.parametrize(("spoil", "words"), MISTAKES, ids=lambda x: getattr(x, "__name__", ""))
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_left(spoil, words, copy, tmp_path, capsys):
    spoil(copy)
    assert build(copy, "--out", tmp_path / "data") == 2
    *progress, line = capsys.readouterr().err.splitlines()
    assert words in line
    assert line.startswith("moac: ")
    assert not any(text.startswith("moac: ") for text in progress)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["src"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--actions", "1000"], "`actions` must be at most 34, the items that train users viewed, got 1000."),
        (["--memory-limit", "10MB"], "`memory_limit` must be at least 500MB, got 10MB."),
        (["--random-log", "nowhere.csv"], "`random_log` must be a file, got nowhere.csv."),
        (["--shares", "1", "1", "1"], "`shares` must be three that sum to 1"),
    ],
)
def test_options_that_cannot_be(options, words, source, tmp_path, capsys):
    assert build(source, "--out", tmp_path / "data", *options) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_part_without_its_sibling(tmp_path, capsys):
    source = generated(tmp_path, rows=300, variant="27k", num_users=30)
    (source / "data" / "log_standard_4_08_to_4_21_27k_part2.csv").unlink()
    assert build(source, "--out", tmp_path / "data") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "log_standard_4_08_to_4_21_27k_part2.csv is missing beside " in line
    assert not (tmp_path / "data").exists()


def test_an_existing_folder_is_left_alone(source, tmp_path, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.txt").write_text("mine")
    assert build(source, "--out", tmp_path / "data") == 2
    assert f"`out` must not exist yet, got {tmp_path / 'data'}" in capsys.readouterr().err
    assert (tmp_path / "data" / "mine.txt").read_text() == "mine"


def test_a_folder_in_a_place_that_is_a_file(source, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert build(source, "--out", tmp_path / "file" / "data") == 2
    assert "`out` must be a folder" in capsys.readouterr().err


def test_several_variants_side_by_side(source, tmp_path, capsys):
    other = generated(tmp_path, rows=300, variant="1k", num_users=30)
    shutil.copytree(source, tmp_path / "KuaiRand-Pure")
    assert build(tmp_path, "--out", tmp_path / "data") == 2
    assert "holds several variants (pure, 1k)" in capsys.readouterr().err
    assert build(other, "--out", tmp_path / "data") == 0


def test_a_folder_with_nothing_in_it(tmp_path, capsys):
    assert build(tmp_path, "--out", tmp_path / "data") == 2
    assert "holds no file of KuaiRand, such as log_standard_4_22_to_5_08_pure.csv." in capsys.readouterr().err


@pytest.fixture(params=["1m", "3m"], ids=["while reading logs", "while writing arrays"])
def small_disk(request, tmp_path):
    """A disk of a few megabytes, where the test may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}", "none", disk]).returncode:
        pytest.skip("cannot mount a small disk")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk(small_disk, large, capsys):
    assert build(large, "--out", small_disk / "data") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "No space left on device" in line
    assert str(small_disk) in line
    assert list(small_disk.iterdir()) == []


def test_a_killed_build_can_be_started_again(environment, large, tmp_path):
    command = [*MOAC, "data", "kuairand", "build", str(large), "--out", str(tmp_path / "data"), "--actions", "10"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("reading logs"):
            break
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    process.stderr.close()
    assert not (tmp_path / "data").exists()
    assert len(list(tmp_path.glob(".data.building-*"))) == 1
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def logs_of(kind, large):
    """The command that builds a dataset from the rows of `large`: as KuaiRand's, or as anybody's log."""
    if kind == "KuaiRand":
        return ["data", "kuairand", "build", str(large), "--actions", "10"]
    columns = ["--user", "user_id", "--item", "video_id", "--time", "time_ms", "--signals", "is_click,is_like"]
    return ["data", "build", str(large / "data" / EARLY), str(large / "data" / LOG), *columns, "--actions", "10"]


def test_a_build_with_a_wrong_signal_takes_the_folders_away_that_it_made(large, tmp_path, capsys):
    command = [
        "data",
        "build",
        str(large / "data" / LOG),
        "--user",
        "user_id",
        "--item",
        "video_id",
        "--time",
        "time_ms",
    ]
    assert cli.main([*command, "--signals", "nothing", "--out", str(tmp_path / "a" / "b" / "c")]) == 2
    assert "must have the column `nothing`" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("kind", "first"), [("KuaiRand", "raw/0"), ("own", "typed0.parquet")])
def test_a_build_that_is_stopped_keeps_what_has_finished_and_goes_on(
    kind, first, number, environment, large, tmp_path, capsys
):
    """DuckDB is busy nearly all the time: its own error must be none that undoes the build."""
    command = logs_of(kind, large)
    stopped = [*MOAC, *command, "--out", str(tmp_path / "data")]
    process = subprocess.Popen(stopped, env=environment, stderr=subprocess.PIPE, text=True)
    while not (kept := list(tmp_path.glob(f".data.building-*/work/{first}"))):
        assert process.poll() is None, process.stderr.read()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert said.splitlines()[-1] == f"moac: stopped; the same command continues {tmp_path / 'data'}"
    assert "Traceback" not in said
    assert kept[0].exists()
    assert cli.main([*command, "--out", str(tmp_path / "data"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert cli.main([*command, "--out", str(tmp_path / "whole"), "--json"]) == 0
    assert again["content"] == json.loads(capsys.readouterr().out)["content"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("data", "must be one of build, describe, kuairand, got nothing. See moac data --help."),
        ("data build --signals click --out x", "`LOG` must be given: moac data build LOG."),
        ("data build x --out y", "`signals` must name what is maximised"),
        ("data build nowhere.csv --signals click --out y", "nothing is at nowhere.csv"),
        ("data kuairan", "got 'kuairan'. Did you mean kuairand?"),
        ("data kuairand", "the command must be one of download, build, generate, got nothing."),
        ("data kuairand biuld x", "got 'biuld'. Did you mean build?"),
        ("data kuairand build", "`SRC` must be given: moac data kuairand build SRC."),
        ("data kuairand build x", "`--out` must be given: moac data kuairand build --out."),
        ("data kuairand build x --action 3", "is not an option of moac data kuairand build. Did you mean --actions?"),
        ("data kuairand build x --out y --actions many", "`--actions` must be a whole number, got 'many'."),
        ("data kuairand build x --shares 1", "`--shares` must be followed by 3 values."),
        ("data kuairand generate here", "'here' is one argument too many for moac data kuairand generate."),
        ("data kuairand generate --out x --rows 0", "`rows` must be a whole number of at least 1, got 0."),
        ("data kuairand download huge --out x", "`variant` must be one of pure, 1k, 27k, got 'huge'."),
        ("data describe nowhere", "nowhere is not a dataset: it has no manifest.json."),
    ],
)
def test_mistakes_on_the_command_line(line, words, capsys):
    assert cli.main(line.split()) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_every_group_has_help(capsys):
    for line in (
        "data --help",
        "data kuairand --help",
        *(f"data kuairand {name} --help" for name in ("download", "build", "generate")),
        "data build --help",
        "data describe --help",
    ):
        with pytest.raises(SystemExit) as end:
            cli.main(line.split())
        assert end.value.code == 0
        assert "moac data" in capsys.readouterr().out


def test_a_damaged_dataset_is_named(source, tmp_path, capsys):
    assert build(source, "--out", tmp_path / "data") == 0
    (tmp_path / "data" / "arrays" / "shared.safetensors").unlink()
    assert cli.main(["data", "describe", str(tmp_path / "data")]) == 2
    assert "shared.safetensors is missing." in capsys.readouterr().err
    manifest = (tmp_path / "data" / "manifest.json").read_text()
    (tmp_path / "data" / "manifest.json").write_text(manifest.replace('"format": 2', '"format": 1'))
    assert cli.main(["data", "describe", str(tmp_path / "data")]) == 2
    assert "was built by another version of moac: build the dataset again." in capsys.readouterr().err
    (tmp_path / "data" / "manifest.json").write_text("{")
    assert cli.main(["data", "describe", str(tmp_path / "data")]) == 2
    assert "manifest.json is damaged" in capsys.readouterr().err
