"""Progress: nothing off a terminal, nothing before a second, nothing on stdout."""

from __future__ import annotations

import io
import sys

import pytest

from tracebook import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def shown(monkeypatch):
    """Bars that were shown, as (words, total, done)."""
    bars = []

    def show(self):
        bars.append(self)
        self._shown = Recorder(), 0

    class Recorder:
        def update(self, task, completed):
            bars[-1].seen = completed

        def stop(self):
            bars[-1].stopped = True

    monkeypatch.setattr(progress.Bar, "_show", show)
    return bars


def test_off_a_terminal_nothing_is_shown(monkeypatch, clock, shown):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.Bar("Reading", 10) as bar:
        clock[0] += 5
        bar.advance(5)
    assert shown == []
    assert sys.stderr.getvalue() == ""


def test_on_a_terminal_it_appears_after_a_second(monkeypatch, clock, shown):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.Bar("Reading", 10) as bar:
        bar.advance(2)
        clock[0] += 0.9
        bar.advance(2)
        assert shown == []
        clock[0] += 0.2
        bar.advance(2)
        assert shown == [bar]
        assert bar.seen == 6
        bar.advance(50)
        assert bar.seen == 10
    assert bar.stopped


def test_it_goes_when_the_work_is_interrupted(monkeypatch, clock, shown):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyboardInterrupt), progress.Bar("Reading", 10) as bar:
        clock[0] += 2
        bar.advance(1)
        raise KeyboardInterrupt
    assert bar.stopped


def test_the_real_bar_writes_to_stderr_only(monkeypatch, clock, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.Bar("Reading run.sqlite", 10) as bar:
        clock[0] += 2
        bar.advance(5)
    assert "Reading run.sqlite" in terminal.getvalue()
    assert capsys.readouterr().out == ""
