"""What every row of bench/compare needs: workers that take turns, statistics,
peak memory of a process, the table."""

import json
import os
import re
import statistics
import subprocess
import threading
import time


class Missing(Exception):
    """A peer, a model or a tool is not there; the text says which and why."""


class Worker:
    """A process that answers one line of JSON with another."""

    def __init__(self, argv, env=None):
        self.name = os.path.basename(argv[-1])
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=env)
        # A reader of its own keeps the last words and the pipe empty.
        self.errors = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stderr:
            self.errors = (self.errors + [line.rstrip()])[-5:]

    def ask(self, op, **args):
        """Sends a request and returns the answer. Its cpu is the processor
        time that the process took meanwhile, in seconds."""
        before = cpu_seconds(self.process.pid)
        try:
            self.process.stdin.write(json.dumps({"op": op} | args) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.process.wait()
            time.sleep(0.1)
            raise Missing(f"{self.name} ended: " + (self.errors[-1] if self.errors else "no message"))
        answer = json.loads(line)
        if "error" in answer:
            raise Missing(f"{self.name}: {answer['error']}")
        answer["cpu"] = cpu_seconds(self.process.pid) - before
        return answer

    def memory(self):
        return memory(self.process.pid)

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    """Bytes of a process by kind: peak resident, and what is resident now."""
    with open(f"/proc/{pid}/status") as f:
        found = dict(re.findall(r"^(VmHWM|RssAnon|RssFile):\s+(\d+) kB", f.read(), re.M))
    return {k: int(v) * 1024 for k, v in found.items()}


def run_watched(argv, env=None):
    """Runs a command to its end: seconds, peak resident and peak anonymous
    memory in bytes, looked at every 2 ms."""
    start = time.perf_counter()
    p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
    anonymous = resident = 0
    while p.poll() is None:
        try:
            m = memory(p.pid)
        except (FileNotFoundError, ProcessLookupError):
            break
        anonymous = max(anonymous, m.get("RssAnon", 0))
        resident = max(resident, m.get("VmHWM", 0))
        time.sleep(0.002)
    _, err = p.communicate()
    if p.returncode:
        raise Missing(f"{' '.join(argv[:2])}: exit {p.returncode}: {(err.strip().splitlines() or [''])[-1]}")
    return {"seconds": time.perf_counter() - start, "resident": resident, "anonymous": anonymous}


def run_timed(argv, env=None):
    """Runs a command to its end and returns the seconds it took."""
    start = time.perf_counter()
    p = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
    took = time.perf_counter() - start
    if p.returncode:
        raise Missing(f"{' '.join(argv[:2])}: exit {p.returncode}: {(p.stderr.strip().splitlines() or [''])[-1]}")
    return took


def interleave(rounds, peer, smelt):
    """Calls both in turns, the first one changing every round, and returns
    their results. peer may be None."""
    a, b = [], []
    for r in range(rounds):
        order = [(peer, a), (smelt, b)] if r % 2 == 0 else [(smelt, b), (peer, a)]
        for f, results in order:
            if f:
                results.append(f())
    return a, b


class Table:
    """Rows of: what, peer, its figure, smelt's, ratio. A ratio above 1 means
    that smelt is better, whether the unit is a speed, a time or a size."""

    HEAD = ["what", "peer", "peer's", "smelt's", "unit", "ratio (min–max)", "aim"]

    def __init__(self, show=print):
        self.rows, self.notes, self.show = [], [], show

    def section(self, title):
        self.rows.append(title)
        self.show(f"\n{title}")

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            self.show(f"  note: {text}")

    def add(self, what, peer, theirs, ours, unit, lower=False, aim=None):
        """theirs and ours are lists of figures, one a round."""
        a = statistics.median(theirs) if theirs else None
        b = statistics.median(ours) if ours else None
        ratio = ""
        if a and b:
            each = sorted((x / y if lower else y / x) for x, y in zip(theirs, ours))
            mid = a / b if lower else b / a
            ratio = f"{mid:.2f}" + (f" ({each[0]:.2f}–{each[-1]:.2f})" if len(each) > 1 else "")
            if aim is not None and mid < aim:
                ratio += " ✗"
        row = [what, peer, number(a), number(b), unit, ratio, "" if aim is None else f"≥ {aim:.2f}"]
        self.rows.append(row)
        self.show("  " + "  ".join(c for c in row if c))

    def missing(self, what, peer, why):
        self.rows.append([what, peer, "missing", "", "", "", ""])
        self.note(f"{what}: {why}")

    def markdown(self):
        out, head = [], False
        for r in self.rows:
            if isinstance(r, str):
                out += ["", f"### {r}", ""]
                head = False
                continue
            if not head:
                out += ["| " + " | ".join(self.HEAD) + " |", "|---|---|--:|--:|---|---|---|"]
                head = True
            out.append("| " + " | ".join(r) + " |")
        if self.notes:
            out += ["", "Notes:", ""] + [f"- {n}" for n in self.notes]
        return "\n".join(out).strip() + "\n"

    def text(self):
        """The same in columns for eyes."""
        rows = [self.HEAD] + [r for r in self.rows if not isinstance(r, str)]
        width = [max(len(r[i]) for r in rows) for i in range(len(self.HEAD))]
        def line(r):
            return "  ".join(c.rjust(w) if i in (2, 3) else c.ljust(w) for i, (c, w) in enumerate(zip(r, width))).rstrip()
        out = [line(self.HEAD), "-" * (sum(width) + 2 * len(width) - 2)]
        for r in self.rows:
            out.append(r if isinstance(r, str) else line(r))
        return "\n".join(out + [f"note: {n}" for n in self.notes])


def number(v):
    if v is None:
        return "—"
    return f"{v:.0f}" if v >= 100 else f"{v:.1f}" if v >= 10 else f"{v:.2f}" if v >= 0.1 else f"{v:.3f}"
