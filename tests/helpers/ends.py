"""Targets of processes that come to a bad end."""

import os
import time


def die(pipe, *_):
    os._exit(1)


def crash(pipe, *_):
    os.kill(os.getpid(), 11)


def hang(pipe, *_):
    time.sleep(600)


def complain(pipe, *_):
    pipe.send("observations: no good")
