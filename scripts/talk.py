#!/usr/bin/env python3
"""Says to a model, in a terminal, the twelve things that the test of a conversation says.

    python3 -m venv /tmp/talk && /tmp/talk/bin/pip install pexpect
    /tmp/talk/bin/python scripts/talk.py target/release/chemigram [--provider NAME --model NAME]

Without a provider the explorer answers. The photo is the program's own, in a home of its own, which is named at the end;
profiles of providers are those of the person who starts this. It succeeds if all twelve are said and something is edited,
which is then tagged v2. Nothing else needs Python.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import pexpect

SAID = [
    "hello",
    "warmer, please",
    "and brighter",
    "/undo",
    "what is it now?",
    "/look 0.2,0.2,0.6,0.6",
    "/nonsense",
    "brighter after all",
    '/explore light="brighter"',
    "good",
    "/review",
    "that is all",
]
# What may be asked before the prompt, and what is answered.
QUESTIONS = [
    (r"\[yes/no\][^\n]*(?:\r?\n> )?$", "no"),
    (r"\[a\]ccept[^\n]*(?:\r?\n> )?$", "d"),
    (r"its name:[^\n]*(?:\r?\n> )?$", "kept"),
]
PATIENCE = 600


def prompt(terminal):
    """Waits until something may be said; false when the conversation is over."""
    while True:
        patterns = [pexpect.EOF, r"(?:^|\n|\r)> $"] + [pattern for pattern, _ in QUESTIONS]
        found = terminal.expect(patterns)
        if found < 2:
            return found == 1
        terminal.sendline(QUESTIONS[found - 2][1])


def main():
    program, *who = sys.argv[1:]
    program = str(pathlib.Path(program).resolve())
    home = tempfile.mkdtemp(prefix="talk-")
    environment = dict(os.environ, XDG_DATA_HOME=home, XDG_CACHE_HOME=home + "/cache", TERM="dumb", NO_COLOR="1")
    for made in (["demo-raw", home + "/photo.dng"], ["ingest", home + "/photo.dng"]):
        subprocess.check_call([program, *made], env=environment, stdout=subprocess.DEVNULL)
    terminal = pexpect.spawn(
        program, ["chat", "photo", *who], env=environment, encoding="utf-8", timeout=PATIENCE, dimensions=(40, 100)
    )
    terminal.logfile_read = sys.stdout
    goes_on = prompt(terminal)
    seconds = []
    for words in SAID:
        if not goes_on:
            break
        began = time.monotonic()
        terminal.sendline(words)
        terminal.expect(re.escape(words) + r"[^\n]*\n")
        goes_on = prompt(terminal)
        seconds.append(f"{time.monotonic() - began:.0f}")
    if goes_on:
        terminal.sendline("/done")
        prompt(terminal)
    terminal.close()
    print(f"\n{len(seconds)} of {len(SAID)} said; seconds each: {' '.join(seconds)}; status {terminal.exitstatus}; {home}")
    # What came of it, as a person takes it over.
    for command in (["promote", "photo", "talk_1", "--tag", "v2"], ["diff", "photo", "main", "v2"]):
        subprocess.check_call([program, *command], env=environment)
    begun, ended = (subprocess.check_output([program, "log", "photo", ref, "--json"], env=environment) for ref in ("main", "v2"))
    edited = begun != ended
    sys.exit(0 if len(seconds) == len(SAID) and terminal.exitstatus == 0 and edited else 1)


if __name__ == "__main__":
    main()
