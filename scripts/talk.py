#!/usr/bin/env python3
"""Says to a model, in a terminal, the twelve things that the test of a conversation says.

    python3 -m venv /tmp/talk && /tmp/talk/bin/pip install pexpect
    /tmp/talk/bin/python scripts/talk.py target/release/chemigram [--provider NAME --model NAME]

Without a provider the explorer answers. The photo is the program's own, in a home of its own, which is named at the end;
profiles of providers are those of the person who starts this. What the model proposes to do besides is declined, what it
proposes to remember is accepted. It succeeds if all twelve are said, something is edited, which is then tagged v2,
something was proposed and nothing of that was made, and a session after it is told all that was accepted. Nothing else
needs Python.
"""

import json
import os
import pathlib
import re
import shutil
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
PATIENCE = 600


class Talk:
    def __init__(self, program, who):
        self.program = str(pathlib.Path(program).resolve())
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="talk-"))
        # The profiles are the person's own; the taste that is accepted here is not.
        config = pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or pathlib.Path.home() / ".config")
        if (config / "chemigram/providers").is_dir():
            shutil.copytree(config / "chemigram/providers", self.home / "config/chemigram/providers")
        folders = {"XDG_DATA_HOME": ".", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config"}
        self.environment = dict(os.environ, TERM="dumb", NO_COLOR="1")
        self.environment |= {name: str(self.home / folder) for name, folder in folders.items()}
        photo = f"{self.home}/photo.dng"
        self.run("demo-raw", photo)
        self.run("ingest", photo)
        self.terminal = pexpect.spawn(
            self.program,
            ["chat", "photo", *who],
            env=self.environment,
            encoding="utf-8",
            timeout=PATIENCE,
            dimensions=(40, 100),
        )
        self.terminal.logfile_read = sys.stdout

    def run(self, *command):
        return subprocess.check_output([self.program, *command], env=self.environment, text=True)

    def lines(self, at):
        """The transcript of a session of the photo; 0 is the newest."""
        session = json.loads(self.run("mode-b", "list", "photo", "--json"))[at]["session"]
        path = self.home / "chemigram/photos/photo/sessions/mode_b" / session / "transcript.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def prompt(self):
        """Waits until something may be said, and answers what is asked before; false when the conversation is over."""
        while True:
            found = self.terminal.expect(
                [pexpect.EOF, r"(?:^|\n|\r)> $", r"\[yes/no\][^\n]*(?:\r?\n> )?$", r"\[a\]ccept[^\n]*(?:\r?\n> )?$"]
            )
            if found < 2:
                return found == 1
            remember = found == 3 and "To remember" in self.terminal.before
            self.terminal.sendline("no" if found == 2 else "a" if remember else "d")

    def say(self, words):
        self.terminal.sendline(words)
        self.terminal.expect(re.escape(words) + r"[^\n]*\n")
        return self.prompt()


def context(lines):
    """What a session read of taste and notes."""
    results = [line["result"] for line in lines if line["kind"] == "tool_result"]
    text = next(result["text"] for result in results if result["name"] == "read_context")
    data = json.JSONDecoder().raw_decode(text)[0]["data"]
    return json.dumps([data.get("tastes"), data.get("notes")], ensure_ascii=False)


def main():
    program, *who = sys.argv[1:]
    talk = Talk(program, who)
    goes_on = talk.prompt()
    seconds = []
    for words in SAID:
        if not goes_on:
            break
        began = time.monotonic()
        goes_on = talk.say(words)
        seconds.append(f"{time.monotonic() - began:.0f}")
    if goes_on:
        talk.say("/done")
    talk.terminal.close()
    lines = talk.lines(0)
    print(f"\n{len(seconds)} of {len(SAID)} said; seconds each: {' '.join(seconds)}; status {talk.terminal.exitstatus}; {talk.home}")

    # What came of it, as a person takes it over.
    print(talk.run("promote", "photo", "talk_1", "--tag", "v2"), talk.run("diff", "photo", "main", "v2"))
    edits = talk.run("log", "photo", "v2", "--json")
    edited = edits != talk.run("log", "photo", "main", "--json")
    questions = [line for line in lines if line["kind"] == "clarification" and "Shall I?" in line["question"]]
    answered = [line["question"] for line in questions if line.get("answer") == "no"]
    declined = [step for question in answered for step in re.findall(r"\n  - (.*)", question)]
    # But for the moves that were asked for, too.
    kept_out = all(step.split()[0] not in edits for step in declined if step.split()[0] not in ("warmth", "exposure"))
    proposals = {line["id"]: line["text"] for line in lines if line["kind"] == "proposal"}
    accepted = [line["id"] for line in lines if line["kind"] == "proposal_answered" and "accepted" in line["status"]]

    talk.run("run-mode-b", "photo", "--vector", "tone=open the shadows", "--budget", "time=5m,iterations=30,branches=1", "--yes")
    told = context(talk.lines(0))
    remembered = all(json.dumps(proposals[id], ensure_ascii=False)[1:-1] in told for id in accepted)
    print(f"proposed and declined: {declined}; accepted: {[proposals[id] for id in accepted]}; the next session is told: {told}")
    checks = [len(seconds) == len(SAID), talk.terminal.exitstatus == 0, edited, declined, kept_out, accepted, remembered]
    sys.exit(0 if all(checks) else 1)


if __name__ == "__main__":
    main()
