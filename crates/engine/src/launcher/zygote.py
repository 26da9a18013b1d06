"""Imports the modules of an engine once, and forks an engine for each request.

Two processes talk to the launcher: this one over the control connection, a line of JSON each way,
and each engine over a connection of its own that is its output. An engine is the grandchild of this
process: its parent ends at once, so that the launcher, the subreaper, becomes its parent.
"""

import importlib
import json
import os
import signal
import socket
import sys


def connect(name, hello):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect("\0" + name)
    connection.sendall((json.dumps(hello) + "\n").encode())
    return connection


def engine(request, name, entry, close):
    """Runs an engine in this process, which was forked for it; never returns."""
    code = 1
    try:
        for connection in close:
            connection.close()
        os.setpgid(0, 0)
        output = connect(name, {"output": request["token"], "process": os.getpid()})
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        output.close()
        # A log is read while it is written.
        sys.stdout.reconfigure(line_buffering=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.environ.update(request["environment"])
        module, _, function = entry.partition(":")
        sys.argv = [module] + request["arguments"]
        result = getattr(importlib.import_module(module), function)()
        code = result if isinstance(result, int) else 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else (0 if end.code is None else 1)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(code & 0xFF)


def main():
    name, preload, entry = sys.argv[1:4]
    failed = {}
    for module in filter(None, preload.split(",")):
        try:
            importlib.import_module(module)
        except Exception as error:
            failed[module] = "%s: %s" % (type(error).__name__, error)
    # The launcher ends this process; engines have the default again.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = connect(name, {"zygote": True, "failed": failed})
    reader = control.makefile("rb")
    for line in reader:
        request = json.loads(line)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.fork()
        if parent == 0:
            if os.fork() == 0:
                engine(request, name, entry, [control])
            os._exit(0)
        os.waitpid(parent, 0)


main()
