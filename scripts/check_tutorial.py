#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/TUTORIAL.md one after the other, as a newcomer would; the server beside those that call it."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

from check_docs import ROOT, blocks, commands


def is_up():
    try:
        with urllib.request.urlopen("http://127.0.0.1:8002/healthz", timeout=1) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def start(command):
    server = subprocess.Popen(command.split(), cwd=ROOT)
    for _ in range(300):
        if is_up():
            return server
        if server.poll() is not None:
            break
        time.sleep(0.1)
    server.kill()
    sys.exit(f"{command}: expected a server that answers within 30 s, got none")


def main():
    with open(os.path.join(ROOT, "docs/TUTORIAL.md"), encoding="utf-8") as file:
        text = file.read()
    if is_up():
        sys.exit("expected no server on port 8002, where the tutorial's will be, got one")
    server = None
    try:
        for language, _, body in blocks(text):
            for _, command in commands(body) if language == "sh" else []:
                print(f"$ {command}", flush=True)
                if "/server --graph" in command:
                    server = start(command)
                elif (status := subprocess.run(["bash", "-c", command], cwd=ROOT).returncode) != 0:
                    sys.exit(f"{command}: exit status {status}")
        if server is None or server.poll() is not None:
            sys.exit("expected a server that still runs, got none")
    finally:
        if server is not None:
            server.terminate()
    if server.wait(timeout=30) != 0:
        sys.exit(f"expected a server that ends when it is told to, got exit status {server.returncode}")


if __name__ == "__main__":
    main()
