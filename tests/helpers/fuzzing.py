"""Seeded fuzzing, in a process of its own.

python tests/helpers/fuzzing.py files|folders|models DIR A B

Makes the cases number A to B - 1 under DIR and prints how many were refused. Every case must end in
a result or in one line, within seconds, without much memory, and touch nothing outside.
"""

import contextlib
import io
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import tampering

LIMIT_SECONDS, LIMIT_MB = 30.0, 300  # a case takes under 1 s; others may keep the machine busy


def fuzz_files(folder, number, chance):
    """An HDF5 file with some bytes changed, read to the end."""
    from grd_offline import DataError
    from grd_offline.io.datasets import open_recording
    from grd_offline.io.formats.summary import summarise

    sources = sorted(folder.glob("*.source"))
    content = bytearray(chance.choice(sources).read_bytes())
    for _ in range(chance.choice([1, 1, 2, 8, 64])):
        _mutate(content, chance)
    target = folder / f"mutated-{os.getpid()}.h5"
    target.write_bytes(content)
    try:
        with open_recording(target) as recording:
            summarise(recording, target)
    except DataError as error:
        message = str(error)
    else:
        return False
    assert message.isprintable(), message
    assert str(target) in message, message
    return True


def _mutate(content, chance):
    place = chance.randrange(len(content) if chance.random() < 0.5 else 4096) % len(content)
    kind = chance.random()
    if kind < 0.5:
        content[place] = chance.randrange(256)
    elif kind < 0.7:
        content[place] ^= 1 << chance.randrange(8)
    elif kind < 0.8:
        content[place : place + 8] = chance.choice([b"\xff" * 8, b"\0" * 8, b"\x7f" * 8])
    elif kind < 0.9:
        block = content[place : place + chance.randrange(64)]
        there = chance.randrange(len(content))
        content[there : there + len(block)] = block
    elif len(content) > 200:
        del content[chance.randrange(100, len(content)) :]


def _tamper_with_one(folder, chance):
    """A copy of one of the templates in which something was changed; and what, in words."""
    templates = folder / "templates"
    name = chance.choice(sorted(os.listdir(templates)))
    target, victim = folder / f"case-{os.getpid()}", folder / "outside" / "thesis.tex"
    tampering.copy(templates / name, target)
    said = [tampering.tamper(target, chance, victim) for _ in range(chance.choice([1, 1, 3]))]
    return name, target, said


def fuzz_folders(folder, number, chance):
    """A run, a decomposition or a judgement in which something was changed, through the command."""
    from grd_offline.cli.program import run

    name, target, said = _tamper_with_one(folder, chance)
    before = tampering.snapshot(folder / "outside")
    command = ["plot" if chance.random() < 0.01 else "report", str(target)]
    if name == "grd" and chance.random() < 0.3:
        command = ["evaluate", str(target), "--truth", "true_rewards"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command)
    lines = err.getvalue().splitlines()
    assert code in (0, 2), (name, said, command, lines)
    assert code == 0 or len(lines) == 1, (name, said, command, lines)
    assert all(line.isprintable() for line in lines), (name, said, lines)
    assert "Traceback" not in err.getvalue(), (name, said, lines)
    assert tampering.snapshot(folder / "outside") == before, (name, said, command)
    page = target / "report.html"
    if code == 0 and command[0] == "report":
        assert not page.is_symlink(), (name, said)
        if number % 8 == 0:
            assert "NaN" not in _payload(page), (name, said)
    return code == 2


def _payload(page):
    """The numbers of a page, which are JSON."""
    text = page.read_text()
    start = text.index('type="application/json"')
    return text[start : text.index("</script>", start)]


def fuzz_models(folder, number, chance):
    """A reward model or policy in which something was changed, loaded and used."""
    import numpy as np
    import reward_models

    from grd_offline import DataError, RewardModel
    from grd_offline.learning.agents.actors import load_actor

    name, target, said = _tamper_with_one(folder, chance)
    before = tampering.snapshot(folder / "outside")
    try:
        if name == "policy":
            actor = load_actor(target)
            observation = np.zeros(actor.spec.observation_size, np.float32)
            assert np.isfinite(actor.act_with_noise(observation, None)).all(), (name, said)
        else:
            model = RewardModel.load(target)
            steps = reward_models.make_steps(3)
            if (len(model.observation_names), len(model.action_names)) == (5, 2):
                next_observations = steps[2] if model.needs_next_observations else None
                terminations = steps[3] if model.needs_termination else None
                rewards = model.predict(*steps[:2], next_observations, terminations)
                assert np.isfinite(rewards).all(), (name, said)
    except DataError as error:
        message = str(error)
    else:
        message = ""
    assert message.isprintable(), (name, said, message)
    assert tampering.snapshot(folder / "outside") == before, (name, said)
    return message != ""


def main():
    kind, folder, first, last = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
    fuzz = {"files": fuzz_files, "folders": fuzz_folders, "models": fuzz_models}[kind]
    number = first

    def stop(*_):
        raise SystemExit(f"hang: {kind} {number}")

    signal.signal(signal.SIGALRM, stop)
    os.fsync = lambda descriptor: None  # no case is about a power cut
    _load_all(kind, folder)
    begin, refused, slowest = _memory(), 0, 0.0
    for number in range(first, last):
        signal.alarm(60)
        start = time.process_time()
        try:
            refused += fuzz(folder, number, random.Random(number))
        except Exception as error:
            raise SystemExit(f"{kind} {number}: {type(error).__name__}: {error}") from error
        slowest = max(slowest, time.process_time() - start)
        assert slowest < LIMIT_SECONDS, f"{kind} {number}: {slowest:.1f} s"
        assert _memory() - begin < LIMIT_MB, f"{kind} {number}: {_memory() - begin:.0f} MB more"
    print(refused, last - first, f"{slowest:.2f}", f"{_memory() - begin:.0f}")


def _load_all(kind, folder):
    """What every case needs is loaded before memory and time are measured."""
    from grd_offline.cli.program import run

    if kind == "folders":
        for name in sorted(os.listdir(folder / "templates")):
            tampering.copy(folder / "templates" / name, folder / "first")
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(sys.stdout):
                run(["report", str(folder / "first")])
                run(["plot", str(folder / "first")])
    else:
        fuzz = {"files": fuzz_files, "models": fuzz_models}[kind]
        for number in range(20):
            fuzz(folder, number, random.Random(number))


def _memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
