"""Programs that a test starts, in a network of its own, and ends by their own ids."""

import ctypes
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BINARY = os.environ.get("MILLRACE", os.path.join(ROOT, "build", "release", "control", "millrace"))

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """What a case throws when the world isn't as it says."""


def check(condition, text):
    if not condition:
        raise Failure(text() if callable(text) else text)


def equal(got, expected, what):
    check(got == expected, f"{what}: got {got!r}, expected {expected!r}")


def until(condition, seconds, what, pause=0.01):
    """Waits for a condition to hold; returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < end, f"not within {seconds} s: {what}")
        time.sleep(pause)


def sh(*command, timeout=60, ok=True, **options):
    """Runs a program to its end; (status, stdout, stderr)."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                          check=False, **options)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if ok:
        check(done.returncode == 0,
              f"{' '.join(command)}: status {done.returncode}\n{out[-2000:]}{err[-2000:]}")
    return done.returncode, out, err


def enter_own_network():
    """Re-executes this program in a network and mount namespace of its own.

    Nothing of it outlives the last process inside, so there is nothing to clean up.
    """
    if os.environ.get("MILLRACE_E2E_INSIDE") == "1":
        os.environ.pop("MILLRACE_E2E_INSIDE")
        return
    env = dict(os.environ, MILLRACE_E2E_INSIDE="1")
    # /sys shows the network of whoever mounted it; tc and ip want a bpffs to load programs.
    script = "mount -t sysfs sysfs /sys && mount -t bpf bpf /sys/fs/bpf; ip link set lo up && " \
             "exec \"$@\""
    os.execvpe("unshare", ["unshare", "--net", "--mount", "sh", "-c", script, "sh",
                           sys.executable, *sys.argv], env)


def die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A background program; its output goes to a file."""

    def __init__(self, command, log, **options):
        self.command, self.log = command, log
        # Appended to, so that a restart keeps what the one before said.
        with open(log, "ab") as out:
            self.popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                          preexec_fn=die_with_parent, **options)
        self.pid = self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def output(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def tell(self, number):
        if self.alive():
            os.kill(self.pid, number)

    def wait(self, seconds):
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self, seconds=10, number=signal.SIGTERM):
        """Asks it to stop, and makes it; its exit status (negative: a signal)."""
        self.tell(number)
        status = self.wait(seconds)
        if status is None:
            self.tell(signal.SIGKILL)
            status = self.popen.wait()
        return status


class Millrace(Process):
    """The proxy. `ready` is when its admin socket answers."""

    def __init__(self, config, folder, wait=20, cpus=None, env=None, binary=BINARY):
        self.config, self.folder, self.binary = config, folder, binary
        self.socket = os.path.join(folder, "admin.sock")
        command = [binary, "run", "--config", config]
        if cpus:
            command = ["taskset", "-c", cpus, *command]
        super().__init__(command, os.path.join(folder, "millrace.log"),
                         env=dict(os.environ, **(env or {})))
        if wait:
            self.wait_ready(wait)

    def wait_ready(self, seconds):
        end = time.monotonic() + seconds
        while not self.status_or_none():
            check(self.alive(), lambda: f"millrace ended at start:\n{self.output()[-3000:]}")
            check(time.monotonic() < end,
                  lambda: f"millrace not ready in {seconds} s:\n{self.output()[-3000:]}")
            time.sleep(0.02)

    def admin(self, *words, ok=True):
        return sh(self.binary, *words, "--socket", self.socket, ok=ok, timeout=30)

    def status_or_none(self):
        if not os.path.exists(self.socket):
            return None
        code, out, _ = self.admin("status", "--json", ok=False)
        try:
            return json.loads(out) if code == 0 else None
        except ValueError:
            return None

    def status(self):
        got = self.status_or_none()
        check(got is not None, lambda: f"status does not answer:\n{self.output()[-2000:]}")
        return got


def numbers(tree, key):
    """The sum of every number called `key` anywhere in a status."""
    total = 0
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name == key and isinstance(value, (int, float)) and not isinstance(value, bool):
                total += value
            else:
                total += numbers(value, key)
    elif isinstance(tree, list):
        total += sum(numbers(value, key) for value in tree)
    return total


def flat(tree, prefix=""):
    """{dotted path: number} of a status."""
    found = {}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) \
        if isinstance(tree, list) else ()
    for name, value in items:
        path = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[path] = value
        else:
            found.update(flat(value, path))
    return found


def wait_port(host, port, seconds=10, process=None):
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError as e:
            check(process is None or process.alive(),
                  lambda: f"{process.command[0]} ended:\n{process.output()[-2000:]}")
            check(time.monotonic() < end, f"nothing listens at {host}:{port}: {e}")
            time.sleep(0.02)


class Nginx(Process):
    """nginx as origin, serving a folder; one process in the foreground."""

    CONF = """
daemon off;
master_process off;
worker_processes 1;
user root;
pid {folder}/nginx.pid;
error_log {folder}/nginx.err warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    default_type application/octet-stream;
    keepalive_requests 100000000;
    keepalive_timeout 300s;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    sendfile on;
    tcp_nopush on;
    server {{
        listen {host}:{port} backlog=4096;
        root {root};
        client_max_body_size 0;
        dav_methods PUT DELETE;
        location = / {{ return 200 "{hello}"; }}
    }}
}}
"""

    def __init__(self, folder, host, port, root, hello="hello from the origin\\n", cpus=None):
        self.folder, self.host, self.port, self.root = folder, host, port, root
        conf = os.path.join(folder, "nginx.conf")
        os.makedirs(root, exist_ok=True)
        with open(conf, "w", encoding="utf-8") as f:
            f.write(self.CONF.format(folder=folder, host=host, port=port, root=root, hello=hello))
        command = ["nginx", "-p", folder, "-e", f"{folder}/nginx.err", "-c", conf]
        if cpus:
            command = ["taskset", "-c", cpus, *command]
        super().__init__(command, os.path.join(folder, "nginx.log"))
        wait_port(host, port, process=self)

    def kill(self):
        """Without a word to anyone."""
        self.end(5, signal.SIGKILL)


class Folder:
    """A temporary folder that goes with the block."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="mre2e.")
        os.chmod(self.path, 0o755)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def random_file(path, size):
    """A file that doesn't compress and differs everywhere; its SHA-256."""
    digest = hashlib.sha256()
    block = os.urandom(1 << 20)
    with open(path, "wb") as f:
        for i in range(0, size, 1 << 20):
            piece = (i.to_bytes(8, "big") + block[8:])[:min(1 << 20, size - i)]
            f.write(piece)
            digest.update(piece)
    return digest.hexdigest()
