# SPDX-License-Identifier: Apache-2.0
"""Runs programs one at a time or side by side, keeps what they print, and ends them when it is ended itself."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

from gpu_programs import ROOT

LOG_BYTES = 8 << 20  # of each log, its end
ENDED = "the run was ended"


def say(line):
    """Prints it while somebody listens: a terminal may be gone before the run ends."""
    try:
        print(line, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def kill_group(pid):
    """Ends a program that leads a session, and what it started; it may have ended by itself just before."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class Log:
    def __init__(self, path):
        self.path, self.lock, self.error = path, threading.Lock(), ""
        self.write("")

    def write(self, text):
        try:
            with self.lock, open(self.path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self.error = f"all of {os.path.basename(self.path)}: {error.strerror}"

    def add(self, title, text):
        self.write(f"==== {title}\n{text}\n")

    def shorten(self):
        with contextlib.suppress(OSError):
            with open(self.path, "rb") as file:
                content = file.read()
            if len(content) > LOG_BYTES:
                with open(self.path, "wb") as file:
                    file.write(b"(the beginning is cut off)\n" + content[-LOG_BYTES:])


class Runner:
    """Runs programs until the run is ended from outside. Then it kills those that run, and starts no more."""

    def __init__(self, log):
        self.log, self.lock, self.running, self.is_stopped = Log(log), threading.Lock(), set(), False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
                signal.signal(number, self.stop)

    def run(self, title, command, seconds):
        """(exit status, output); the status is None when the time was over."""
        if self.is_stopped:
            return None, ""
        process = subprocess.Popen(command, cwd=ROOT, text=True, errors="replace", stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        with self.lock:
            self.running.add(process.pid)
        if self.is_stopped:
            kill_group(process.pid)
        try:
            output, status = process.communicate(timeout=max(seconds, 1))[0], process.returncode
        except subprocess.TimeoutExpired:
            kill_group(process.pid)
            output, status = process.communicate()[0], None
        with self.lock:
            self.running.discard(process.pid)
        self.log.add(title, output)
        return status, output

    def stop(self, *_):
        """Takes no lock: as the handler of a signal it may have interrupted who holds it."""
        self.is_stopped = True
        for pid in tuple(self.running):
            kill_group(pid)

    def why(self, reason):
        """Of what is left out."""
        return ENDED if self.is_stopped else reason
