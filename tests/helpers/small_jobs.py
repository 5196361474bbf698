"""A program in place of `grd-offline`, whose jobs take a moment and break when they are told to."""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(arguments):
    """Write the result of a job: `train-online --steps N --env KIND --out FOLDER`."""
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    folder = Path(options.get("--out") or options["--resume"])
    about, log = folder / "settings.json", folder / "tries.txt"
    is_resumed = "--resume" in options
    if is_resumed:
        options = json.loads(about.read_text())
    else:
        folder.mkdir()  # fails if it is there already
        about.write_text(json.dumps(options))
    with log.open("a") as file:
        file.write(f"{'resumed' if is_resumed else 'begun'} {os.environ['OMP_NUM_THREADS']}\n")
    kind = options.get("--env", "fine").rsplit("/", 1)[-1]
    broken = folder.parent / "broken-once"
    if kind == "once" and not broken.exists():
        broken.touch()
        print("grd-offline: error: out of luck")
        sys.exit(2)
    if kind == "never":
        print("grd-offline: error: it is broken")
        sys.exit(2)
    if kind == "killed" and not is_resumed:
        (folder / "checkpoint.pt").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "damaged" and not (folder.parent / "begun-twice").exists():
        if not is_resumed and broken.exists():
            (folder.parent / "begun-twice").touch()
        else:
            broken.touch()
            (folder / "checkpoint.pt").write_text("of no use")
            print("grd-offline: error: the checkpoint is of no use")
            sys.exit(2)
    if kind == "slow":
        wait_for_a_signal(folder)
    (folder / "evaluations.csv").touch()
    (folder / "value.txt").write_text(str(int(options.get("--steps", "1")) ** 2))


def wait_for_a_signal(folder):
    """Save a checkpoint when asked to stop; a resumed job is quick."""
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        return

    def stop(number, frame):
        checkpoint.write_text("half")
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    (folder / "waiting").touch()
    time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1:])
