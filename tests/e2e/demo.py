#!/usr/bin/env python3
"""A request through Millrace, from a client to an origin and back, and what it met on its way.

    ./run demo [--stay]

Starts Millrace on a port of its own (a veth pair, mill0), nginx as origin on the kernel's end of
that wire, sends a request and shows the origin's answer, the request's path through the layers with
its timings, and the counters. --stay keeps everything up until Ctrl-C.
"""

import argparse
import json
import os
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from proc import BINARY, HERE, Failure, Folder, Millrace, Nginx, check, numbers, sh, until

OURS, KERNEL = "10.77.0.1", "10.77.0.2"
HELLO = "Hello from the origin: this answer came through Millrace."
TIMES = ("time_connect", "time_starttransfer", "time_total", "local_port")


def say(text=""):
    print(text, flush=True)


def write_config(folder):
    with open(os.path.join(HERE, "demo.yaml"), encoding="utf-8") as f:
        text = f.read()
    # The last CPU for the core, so that the first is left to the kernel and everyone else.
    path = os.path.join(folder, "demo.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace("{folder}", folder).replace("{cpu}", str((os.cpu_count() or 1) - 1)))
    return path


def ask(url):
    """(body, curl's times)."""
    form = "\\n" + json.dumps({name: f"%{{{name}}}" for name in TIMES})
    _, out, _ = sh("curl", "-sS", "--max-time", "10", "-w", form, url)
    body, _, times = out.rpartition("\n")
    return body, {k: float(v) for k, v in json.loads(times).items()}


def access_record(folder, mark):
    path = os.path.join(folder, "access.log")

    def find():
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as f:
            return next((line for line in f if mark in line), None)
    return json.loads(until(find, 5, "the request in the access log"))


def ms(seconds):
    return f"{seconds * 1e3:.3f} ms"


def path_of(before, after, times, record):
    """The request's way, layer by layer, with what each counted for it."""
    def moved(*keys):
        return tuple(int(numbers(after, k) - numbers(before, k)) for k in keys)

    def group(name, *keys):
        return tuple(int(numbers([c.get(name, {}) for c in after["cores"]], k)
                         - numbers([c.get(name, {}) for c in before["cores"]], k)) for k in keys)
    core = after["cores"][0]
    steer = moved("steer_redirect", "steer_pass")
    port = after["ports"][0]
    net, tcp = group("net", "rx_packets", "tx_packets"), group("tcp", "segs_in", "segs_out",
                                                              "zero_copy_out", "copies_out")
    took = ms(record["duration_us"] / 1e6)
    waited = ms(record["upstream_us"] / 1e6)
    return f"""
  client    curl, {KERNEL}:{int(times['local_port'])}, the kernel's TCP
     |        connected after {ms(times['time_connect'])}
     |        veth wire mill0
  xdp       {steer[0]} frames steered to Millrace, {steer[1]} left to the kernel
  port      {port['name']} ({port['driver']}, {port['mac']})
  net       {net[0]} frames in, {net[1]} out
  tcp       {tcp[0]} segments in, {tcp[1]} out: {tcp[2]} without copying their payload, {tcp[3]} copied
  http      GET / on listener {record['listener']}, core {core['core']} (CPU {core['cpu']})
  route     host "*", path "/" -> upstream {record['upstream']}
  upstream  {'a pooled' if record.get('reused') else 'a new'} connection of our own TCP to {KERNEL}:9000
     |        the origin's answer began after {waited}
  origin    nginx on {KERNEL}:9000, the kernel's TCP
     |        and back the same way
  http      status {record['status']}, {took} from the request's first byte to the answer's last
  client    first byte after {ms(times['time_starttransfer'])}, done after {ms(times['time_total'])}"""


def show(proxy, folder):
    # The neighbours and the origin's connection are made by the first request; the second is the
    # usual case. Both are shown.
    for name in ("first", "second"):
        mark = f"/?{name}"
        before = proxy.status()
        body, times = ask(f"http://{OURS}:8080{mark}")
        record = access_record(folder, mark)
        after = proxy.status()
        check(body.strip() == HELLO, f"not the origin's answer: {body!r}")
        if name == "first":
            say(f"The origin's answer:\n\n  {body.strip()}\n")
        say(f"The {name} request's path:{path_of(before, after, times, record)}\n")
    through = sh("curl", "-sS", "--max-time", "10", f"http://{OURS}:8081/")[1].strip()
    check(through == HELLO, f"not the origin's answer: {through!r}")
    say("The same through the TCP tunnel at port 8081: the same answer.\n")
    say("The counters (millrace status):\n")
    say(proxy.admin("status")[1].rstrip())


def stay(proxy):
    say(f"""
It stays up until Ctrl-C.

  http     curl http://{OURS}:8080/
  tunnel   curl http://{OURS}:8081/
  status   {os.path.relpath(BINARY)} status --socket {proxy.socket}
  metrics  curl http://127.0.0.1:9901/metrics
  config   {proxy.config} (change it: it is reloaded)
  files    put some into {os.path.join(proxy.folder, 'files')},
           or upload: curl -T FILE http://{OURS}:8080/NAME
""")
    while proxy.alive():
        if proxy.wait(1) is not None:
            break
    raise Failure(f"millrace ended:\n{proxy.output()[-2000:]}")


def stop(*_):
    raise KeyboardInterrupt


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--stay", action="store_true", help="keep it up until Ctrl-C")
    args = p.parse_args()
    signal.signal(signal.SIGTERM, stop)
    proxy = origin = None
    with Folder() as folder:
        try:
            proxy = Millrace(write_config(folder), folder)
            origin = Nginx(folder, KERNEL, 9000, os.path.join(folder, "files"), hello=HELLO + "\\n")
            show(proxy, folder)
            if args.stay:
                stay(proxy)
            return 0
        except KeyboardInterrupt:
            return 0
        except Failure as e:
            print(f"demo: {e}", file=sys.stderr)
            return 1
        finally:
            if origin:
                origin.end()
            if proxy:
                proxy.end(15)


if __name__ == "__main__":
    sys.exit(main())
