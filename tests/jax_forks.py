"""Programs that begin after ``import jax``: each runs in a process forked from one that has imported it, and no more.

That import takes most of a process's second. What a program does before it, and what JAX reads from the environment
while it is imported, is for processes of their own.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

# A program that takes longer is ended by a signal.
_SECONDS = 120


class Forks:
    """The process that is forked, which starts with the first program."""

    def __init__(self):
        self._server = None

    def run(self, code, *arguments, environment=None):
        """What ``subprocess.run`` gives of ``python -c code arguments``; JAX has the platforms of the environment."""
        if self._server is None:
            environment_at_import = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
            environment_at_import["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
            self._server = subprocess.Popen(
                [sys.executable, __file__],
                env=environment_at_import,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        given = dict(os.environ if environment is None else environment)
        with tempfile.TemporaryDirectory() as folder:
            request = {"code": code, "arguments": [*map(str, arguments)], "environment": given, "folder": folder}
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            status = int(self._server.stdout.readline())
            out, err = (Path(folder, name).read_text() for name in ("out", "err"))
        return subprocess.CompletedProcess(code, status, out, err)

    def close(self):
        if self._server is not None:
            self._server.stdin.close()
            assert not self._server.wait(60)
            self._server.stdout.close()


def _serve():
    """Fork for each request; the child returns with its own."""
    import jax
    import jax.numpy  # noqa: F401, what every program imports

    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    while line := requests.readline():
        child = os.fork()
        if not child:
            request = json.loads(line)
            requests.close()
            answers.close()
            _become(request)
            return request["code"]
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    return ""


def _become(request):
    import jax

    signal.alarm(_SECONDS)
    for number, name in enumerate((os.devnull, f"{request['folder']}/out", f"{request['folder']}/err")):
        file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS"))
    sys.argv[:] = ["-c", *request["arguments"]]
    sys.path[0] = ""


if __name__ == "__main__":
    exec(compile(_serve(), "<string>", "exec"))
