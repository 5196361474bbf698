"""Make this process lack what Windows lacks, as far as its own code can tell.

The libraries that the project uses are imported before, because they were built for this system.
On Windows and macOS themselves nothing is taken away.
"""

import importlib
import os
import signal
import sys

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline")
OS_NAMES = (
    *("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC", "O_SYNC", "O_DSYNC", "O_NOCTTY"),
    *("fork", "forkpty", "register_at_fork", "wait", "wait3", "wait4", "waitid", "killpg"),
    *("getuid", "geteuid", "getgid", "getegid", "getgroups", "getpgid", "setpgid", "setsid"),
    *("nice", "uname", "mkfifo", "mknod", "getloadavg", "sync", "fchdir"),
    *("pwrite", "pread", "pwritev", "preadv", "fchmod", "fchown", "chown", "lchown", "chroot"),
    *("WIFSIGNALED", "WTERMSIG", "WEXITSTATUS", "WIFEXITED", "posix_fadvise", "sendfile"),
    *("sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "sched_param", "SCHED_IDLE"),
)
SIGNAL_NAMES = (
    *("SIGHUP", "SIGALRM", "SIGKILL", "SIGXCPU", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGWINCH"),
    *("SIGCHLD", "SIGQUIT", "SIGTSTP", "SIGCONT"),
    *("setitimer", "getitimer", "ITIMER_REAL", "alarm", "pause", "pthread_sigmask", "sigwait"),
)
LIBRARIES = (
    *("numpy", "scipy.linalg", "h5py", "sklearn.base", "click.testing", "rich.live", "torch"),
    *("polars", "msgspec", "jinja2", "lazy_loader"),
    *("rich.progress", "safetensors.numpy", "gymnasium.envs.mujoco.mujoco_env", "minari"),
    *("matplotlib.figure", "threadpoolctl", "jaxtyping", "multiprocessing.connection"),
    *("concurrent.futures.process", "tempfile", "subprocess", "shutil", "tarfile", "asyncio"),
)


def become(libraries=LIBRARIES) -> None:
    """Block the modules, and take the names away."""
    if sys.platform != "linux":
        return
    for name in libraries:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "filelock"]:
        del sys.modules[name]
    for name in MODULES:
        sys.modules[name] = None  # an import of it fails
    for names, module in ((OS_NAMES, os), (SIGNAL_NAMES, signal)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
