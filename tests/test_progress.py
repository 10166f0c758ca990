"""What is seen of a run: one line that changes in a terminal, plain lines elsewhere."""

import io

import pytest
from rich.console import Console

from fedivon_app.progress import Line, RunLines

SAID = [
    "demo, fedivon, seed 0; run folder /runs/1",
    "4 clients with 3 to 9 examples, 20 in all",
    "round 1/4  train loss 0.9  0.10 s",
    "round 2: dropped the reply of partition 3: too late",
    "round 2/4  train loss 0.8  mean: acc 71.20 nll 0.9000 ece 0.1  mc: acc 72.50 nll 0.8  0.1 s",
    "round 3/4  train loss 0.7  0.10 s",
]


class Clock:
    def __init__(self, step: float):
        self.step = step
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def changes(monkeypatch):
    """What the changing line shows, time after time."""
    seen = []
    own = Line.change

    def change(self, what, told="", done=0, of=None):
        seen.append((what, told, done, of))
        own(self, what, told, done, of)

    monkeypatch.setattr(Line, "change", change)
    return seen


def test_a_terminal_has_one_line_with_the_time_left_and_the_last_scores(changes):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    with Line(live=True, console=console) as line:
        lines = RunLines(line, clock=Clock(30.0))
        lines.begin("run 1 of 2: fedivon", "starting its processes")
        for text in SAID:
            lines(text)
        lines.end()
    told = [told for _, told, _, _ in changes]
    assert "starting its processes ..." in told and "in its first round ..." in told
    assert told[-3:] == [
        "1/4  loss 0.9",
        "2/4  60 s left  loss 0.8  acc 72.50 nll 0.8",
        "3/4  30 s left  loss 0.7  acc 72.50 nll 0.8",
    ]
    assert changes[-1][2:] == (3, 4) and changes[-1][0] == "run 1 of 2: fedivon"
    text = shown.getvalue()
    assert "dropped the reply of partition 3" in text and "━" in text
    assert text.count("round 3/4") == 1  # left behind at the end


def test_after_the_last_round_nobody_waits_for_clients(changes):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Line(live=True, console=console) as line:
        lines = RunLines(line)
        lines.begin("fedivon")
        for text in ("round 1/2  train loss 0.9", "round 2/2  train loss 0.8", "completed"):
            lines(text)
    assert [told for _, told, _, _ in changes][-1] == "writing its report ..."


def test_a_pipe_has_every_line_and_an_estimate_after_the_first_rounds(capsys):
    with Line(live=False) as line:
        lines = RunLines(line, clock=Clock(100.0))
        lines.begin("fedivon")
        for text in SAID:
            lines(text)
        lines.end()
    told = capsys.readouterr().out.splitlines()
    estimate = "  about 3 min left for this run, by its first rounds"
    assert told == [*SAID[:5], estimate, SAID[5]]
    assert "\x1b" not in "".join(told)


def test_a_short_run_has_no_estimate_and_a_brief_one_only_its_last_round(capsys):
    with Line(live=False) as line:
        lines = RunLines(line, brief=True, clock=Clock(0.1))
        for name in ("one", "two"):
            lines.begin(name)
            for text in SAID:
                lines(text)
            lines.end()
    assert capsys.readouterr().out.splitlines() == [f"  {SAID[-1]}"] * 2


def test_who_wants_all_gets_all(capsys):
    with Line(live=False) as line:
        lines = RunLines(line, verbose=True, brief=True)
        lines.begin("fedivon")
        for text in ["INFO: something of Flower's", *SAID]:
            lines(text)
        lines.end()
    assert capsys.readouterr().out.splitlines() == ["INFO: something of Flower's", *SAID]


def test_words_of_a_run_are_no_markup(capsys):
    shown = io.StringIO()
    with Line(live=True, console=Console(file=shown, force_terminal=True, width=80)) as line:
        line.change("[bold]x[/bold]", "[red]y")
        line.say("a [red]bracket[/red] [/]")
    assert "a [red]bracket[/red] [/]" in shown.getvalue()
