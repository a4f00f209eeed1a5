import builtins
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
from rich.table import Table

from moac import __main__, default_config, envs, momdp, settings
from moac.choices import counted, did_you_mean
from moac.cli import console, options, process
from moac.cli import main as cli
from moac.cli.theory import Front
from moac.config import Average, Config, Discounted
from moac.policies.observations import LogSpec
from moac.search import plan


def config_of(arguments):
    command = cli.parse(arguments)
    return options.config_of(command.config, command.problem.setting, command.problem.discount)


def test_every_field_of_the_configuration_is_an_option_with_its_help(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    for field in (field for field in fields(Config) if field.name not in ("preferences", *options.LOG_ONLY)):
        assert f"--{field.name.replace('_', '-')} " in shown
    assert "T, the number of policy updates." in shown
    assert "{None}" not in shown


@pytest.mark.parametrize("learner", ["ppo", "paper"])
@pytest.mark.parametrize(
    "env", ["resource-gathering-v0", "mo-mountaincar-v0", "mo-mountaincarcontinuous-v0", "deep-sea-treasure-v0"]
)
def test_the_help_names_what_is_filled_in(env, learner):
    """The words hold the values of `moac.defaults`; step sizes of tables by the paper's learner are a formula."""
    spec = envs.make(env).spec
    filled = default_config.of_spec(spec, Config(learner=learner))
    assert default_config.of_spec(spec, Config()).learner == "ppo" in options.DEFAULTS["learner"]
    of_ppo = {"epochs", "minibatch_size", "units"} if learner == "paper" else {"critic_batch_size"}
    formula = {"actor_step_size"} if filled.optimiser == "constant" else set()
    for name in set(options.DEFAULTS) - of_ppo - formula:
        assert _value_in(options.DEFAULTS[name], getattr(filled, name)), name
    assert filled.actor_batch_size == (64 * spec.num_chains if learner == "ppo" else 128)


def test_help_names_only_what_a_command_takes(capsys):
    told = {}
    for command in ("train", "explore", "offline train"):
        with pytest.raises(SystemExit):
            cli.main([*command.split(), "--help"])
        told[command] = capsys.readouterr().out
    for name, on_a_log in (("`table`", False), ("`gaussian`", False), ("`plain`", None), ("`items`", True)):
        assert (name in told["train"]) is (on_a_log is False), name
        assert (name in told["offline train"]) is (on_a_log is True), name
        assert (name in told["explore"]) is (on_a_log is not None), name
    assert all("`mlp` (logits from a network)" in " ".join(shown.replace("│", "").split()) for shown in told.values())


def test_the_help_of_logs_names_what_is_filled_in():
    filled = default_config.of_spec(SimpleNamespace(observations=LogSpec(3)), Config())
    for name in set(options.LOG_DEFAULTS) - set(options.NEVER_ON_A_LOG):
        assert _value_in(options.LOG_DEFAULTS[name], getattr(filled, name)), name


def _value_in(words, value):
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value).lower().removesuffix(".0")
    return re.search(rf"(?<![\w.]){re.escape(shown)}(?![\w.])", words) is not None


def test_defaults_are_those_of_the_configuration():
    assert config_of(["train", "x"]) == Config()


def test_iterations_is_short_for_num_iterations():
    for option in ("--iterations", "--num-iterations", "--num_iterations"):
        assert config_of(["train", "x", option, "7"]).num_iterations == 7


def test_setting_and_discounts():
    config = config_of(["train", "x", "--discount", "0.9", "0.5", "--weights", "1", "0"])
    assert config.setting == Discounted((0.9, 0.5))
    assert config.weights == (1.0, 0.0)
    assert config_of(["train", "x", "--setting", "average"]).setting == Average()


def test_help_and_wrong_names_and_paths_are_answered_without_jax(tmp_path):
    """All in one process: what one of them imports, the next would have too."""
    lines = [
        "--help",
        "train --help",
        "--version",
        "train x --trials 0",
        "oops",
        "train fishwod-v0",
        "explore shop.csv",
    ]
    lines += [
        f"{name} nope" for name in ("resume", "report", "evaluate", "certify", "watch", "compare", "offline recommend")
    ]
    lines += ["explore shop.csv", "sweep nope.toml", "offline train nope --out x"]
    script = "import sys\nfrom moac.cli.main import main\n"
    for line in lines:
        script += f"try:\n    main({line.split()})\nexcept SystemExit:\n    pass\n"
        script += f"assert 'jax' not in sys.modules, {line!r}\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "moac: `ENV` must be an id that moac envs lists, got 'fishwod-v0'. Did you mean fishwood-v0?" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_ids_are_read_from_the_registrations():
    for name in envs.known_ids():
        options.check_environment(name)
    options.check_environment("package.module:Own-v0")


def test_options_stand_in_groups_and_only_where_they_can_be_used(capsys):
    shown = {}
    for command in ("train", "explore", "offline train"):
        with pytest.raises(SystemExit):
            cli.main([*command.split(), "--help"])
        shown[command] = capsys.readouterr().out
    for heading in ("run", "problem", "algorithm", "networks", "expert"):
        assert f" {heading} options " in shown["train"]
    assert not [name for name in options.LOG_ONLY if f"--{name.replace('_', '-')} " in shown["train"]]
    assert not [name for name in options.NEVER_ON_A_LOG if f"--{name.replace('_', '-')} " in shown["offline train"]]
    assert "--entropy FLOAT [FLOAT ...]" in shown["explore"]


def test_the_configuration_is_shown_with_its_defaults(capsys):
    assert cli.main(["train", "fishwood-v0", "--show-config", "--entropy", "0.1", "--json"]) == 0
    model = momdp.library.fishwood()
    assert Config.from_json(json.loads(capsys.readouterr().out)) == settings.complete(Config(entropy=0.1), model.spec)
    assert cli.main(["train", "fishwood-v0", "--show-config"]) == 0
    assert "2 states: a table of logits" in capsys.readouterr().out


def test_an_option_of_one_choice_is_refused_with_that_choice(capsys):
    assert cli.main(["export", "run", "--format", "x"]) == 2
    assert capsys.readouterr().err == "moac: `--format` must be one of onnx, got 'x'.\n"


def test_the_configuration_of_an_exploration_is_shown_as_it_would_be_trained(capsys):
    assert cli.main(["explore", "fishwood-v0", "--show-config", "--json"]) == 0
    shown = Config.from_json(json.loads(capsys.readouterr().out))
    planned = plan.Plan.of(plan.Options(), momdp.library.fishwood())
    assert shown == replace(planned.config, evaluation_share=planned.evaluation_share)


def test_the_help_of_an_exploration_says_what_it_does_without_an_option(capsys):
    with pytest.raises(SystemExit):
        cli.main(["explore", "--help"])
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    planned = plan.Plan.of(plan.Options(), momdp.library.fishwood())
    assert f"(default: {planned.config.num_iterations} on models, 200 with ppo, else 2000" in told
    assert f"(default: {planned.config.num_evaluations}, shared by the stages of entropy; at most 8 with" in told
    assert f"(default: {planned.evaluation_share})" in told
    environment = envs.make("deep-sea-treasure-v0", num_envs=2)
    (task,) = plan.Plan.of(plan.Options(), environment).stages("conditioned")
    assert (task.config.num_evaluations, task.config.num_iterations) == (8, 200)


@pytest.mark.parametrize(("owner", "at"), [(cli, "parse"), (Front, "run")])
def test_interrupt_has_no_traceback(owner, at, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, at, interrupted)
    assert cli.main(["front", "fishwood-v0"]) == 130
    assert capsys.readouterr().err == "moac: interrupted.\n"


def test_interrupt_before_the_command_line_is_imported_has_no_traceback(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patched:
        patched.setattr(builtins, "__import__", interrupted)
        code = __main__.main()
    assert signal.signal(signal.SIGINT, handler) is signal.SIG_IGN  # nothing is left that it could stop
    assert (code, capsys.readouterr().err) == (130, "moac: interrupted.\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_that_a_library_has_made_another_error_is_still_one(number, code, monkeypatch, capsys):
    def imported(_):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(Front, "run", imported)
    assert cli.main(["front", "fishwood-v0"]) == code
    assert capsys.readouterr().err == "moac: interrupted.\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\n  lines"), "moac: two lines\n"),
        (PermissionError(13, "Permission denied", "/somewhere/x"), "moac: /somewhere/x: Permission denied.\n"),
        (OSError("odd"), "moac: odd\n"),
    ],
)
def test_errors_are_one_line(error, line, monkeypatch, capsys):
    def fails(_):
        raise error

    monkeypatch.setattr(Front, "run", fails)
    assert cli.main(["front", "fishwood-v0"]) == 2
    assert capsys.readouterr().err == line


def test_a_mistake_of_an_unknown_kind_is_told_in_the_words_of_the_parser():
    class Command:
        pass

    assert cli._explained("Odd: --trials and 7.", "moac train", Command, []) == "Odd: --trials and 7."
    assert cli._explained("", "moac train", Command, []).endswith("see moac train --help.")


@pytest.mark.parametrize(
    "line",
    [
        "train x",
        "train x --trials 3 --json --discount 0.9 0.5 -0.5 --weights None",
        "train --json x --out=dir --critic_step_size 1e-3",
        "front --memory x",
        "resume run",
        "evaluate run other --trial 2",
        "theory x --run run",
        "data kuairand build x --out y --shares 0.5 0.3 0.2",
        "offline train x --out y --pulls 1 0.1 --protect Like=-1%",
    ],
)
def test_what_is_right_is_parsed(line):
    assert callable(cli.parse(line.split()).run)


def test_help_lists_every_command(capsys):
    for group in ([], ["data"], ["data", "kuairand"], ["offline"]):
        with pytest.raises(SystemExit) as end:
            cli.main([*group, "--help"])
        assert end.value.code == 0
        shown = capsys.readouterr().out
        assert all(f"moac {name} " in shown for name in cli.COMMANDS if name.split()[: len(group)] == group)


def test_did_you_mean():
    assert did_you_mean("--iteration", ["--iterations", "--seed"]) == " Did you mean --iterations?"
    assert did_you_mean("--bogus", ["--out", "--json"]) == ""


def test_one_thing_is_counted_without_an_s():
    assert [counted(n, "policy") for n in (0, 1, 2)] == ["0 policies", "1 policy", "2 policies"]
    assert [counted(n, "test user", ",") for n in (1, 1024)] == ["1 test user", "1,024 test users"]
    assert [counted(n, "trial") for n in ("1", "10\u202f000")] == ["1 trial", "10\u202f000 trials"]


def test_outside_the_main_thread_signals_are_left_alone():
    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: process.Interrupts().__enter__().__exit__(None, None, None)).result()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    "arguments",
    [
        ["x" * 20_000],
        ["train", "fishwood-v0", "--trials", "y" * 20_000],
        ["train", "fishwood-v0", "--weights", *["0.5"] * 20_000],
        ["train", "fishwood-v0", "--momentum", "z " * 10_000],
        ["resume", "r" * 20_000],
    ],
)
def test_long_values_are_shortened(arguments, capsys):
    assert cli.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "…" in err
    assert len(err) < 5000


def test_a_line_of_usual_length_is_whole(capsys):
    assert cli.main(["train", "fishwood-v0", "--momentum", "often"]) == 2
    assert capsys.readouterr().err.endswith("got 'often'.\n")


@pytest.mark.parametrize("text", ["[/red]", "[bold]x[/bold]", "runs/[a-z]", ":smile:", "[link=x]"])
def test_what_is_printed_is_no_markup(text, capsys):
    table = Table(title=text, caption=text)
    table.add_column(f"head {text}")
    table.add_row(f"cell {text}")
    shown = console.plain()
    shown.print(table)
    shown.print(f"line {text}", highlight=False, soft_wrap=True)
    out = capsys.readouterr().out
    assert out.count(text) == 5
    assert all(f"{place} {text}" in out for place in ("head", "cell", "line"))


def test_a_name_that_cannot_be_encoded_is_shown_escaped():
    imports = "from moac.cli.main import main; from moac.cli.console import plain"
    script = f"{imports}; main(['\\udcff']); plain().print('\\udcff \\u03bb')"
    surroundings = os.environ | {"PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=surroundings)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "\\udcff \\u03bb\n"
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("moac: ")
