"""The edge's own duties: who may come in and how often, what is answered at once, what changes."""

import json
import os
import re

from cases import case
from cases_life import Fresh
from cases_reload import put, read, running
from proc import check, equal, numbers, sh, until
from raw import Client
from world import DEVICE, KERNEL, OURS

EDGE = 8090
OTHERS = [f"10.78.0.{n}" for n in range(3, 9)]


class Edge(Fresh):
    """Two cores, a listener for the case's own duties, and clients of several addresses."""

    def __init__(self):
        super().__init__(cores="0, 1", queues="2")

    def __enter__(self):
        world = super().__enter__()
        self.text = read(world.config)
        for address in OTHERS:
            sh("ip", "address", "add", f"{address}/24", "dev", DEVICE)
        return self

    @property
    def proxy(self):
        return self.world.proxy

    def use(self, listener="", http="", routes="        - upstream: scripted\n"):
        """Live, on both cores, when it returns."""
        put(self.world.config, self.text.replace(
            "upstreams:\n", f"  - name: edge\n    address: {OURS}:{EDGE}\n{listener}    http:\n{http}"
            f"      routes:\n{routes}upstreams:\n", 1))
        self.proxy.admin("reload")
        return running(self.proxy)

    def refused(self, *more):
        """The errors of a configuration that isn't taken."""
        put(self.world.config, self.text.replace("upstreams:\n", "".join(more) + "upstreams:\n", 1))
        code, _, err = self.proxy.admin("reload", ok=False)
        equal(code, 1, "exit status of the reload")
        return err

    def count(self, name):
        return [one[name] for one in self.proxy.status()["listeners"] if one["name"] == "edge"][0]

    def log(self):
        with open(os.path.join(self.world.folder, "access.log"), encoding="utf-8") as f:
            return [json.loads(line) for line in f]


def edge(source=None):
    return Client(OURS, EDGE, timeout=5, source=source)


def get(client, path="/echo", host="a", more=""):
    return client.send(f"GET {path} HTTP/1.1\nHost: {host}\n{more}\n").answer()


def comes_in(source):
    """200: it does; else how it fails."""
    try:
        with edge(source) as c:
            return get(c).status
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return "timed out"


def enter(source):
    """A connection that has been served; None: it was reset right after its handshake."""
    try:
        c = edge(source)
        c.send("GET /echo HTTP/1.1\nHost: a\n\n")
        if c.more():
            equal(c.answer().status, 200, "status")
            return c
    except (ConnectionResetError, BrokenPipeError):
        return None
    equal(c.ended, "rst", "how it ended")
    c.close()
    return None


@case("duties: lists hold to the address, at the SYN and by route, and change live", own=True)
def lists(_):
    with Edge() as e:
        e.use(listener="    access: { allow: [10.78.0.2, 10.78.0.4/30], deny: [10.78.0.6/31] }\n")
        equal([comes_in(a) for a in [KERNEL, *OTHERS]],
              [200, "refused", 200, 200, "refused", "refused", "refused"], "who comes in")
        equal(e.count("denied"), 4, "denied")
        with edge(OTHERS[1]) as stays:
            equal(get(stays).status, 200, "before")
            e.use(listener="    access: { deny: [10.78.0.4/30], refuse: silent }\n")
            equal(get(stays).status, 200, "a connection that stands")
            equal([comes_in(a) for a in (OTHERS[0], OTHERS[5])], [200, 200], "those beside it")
            equal(comes_in(OTHERS[1]), "timed out", "one that is denied in silence")
        e.use(routes="        - match: { path_prefix: /echo }\n          upstream: scripted\n"
                     "          access: { deny: [10.78.0.4/31] }\n        - upstream: scripted\n")
        equal([comes_in(a) for a in OTHERS], [200, 403, 403, 200, 200, 200], "by route")
        with edge(OTHERS[1]) as c:
            equal([get(c, p).status for p in ("/status/200", "//echo", "/%65cho", "/echo/../x")],
                  [200, 403, 403, 400], "ways around it")


@case("duties: a rate holds exactly, whatever connections and cores the requests come by", own=True)
def rates(_):
    with Edge() as e:
        e.use(http="      rate_limit: { rate: 1/h, burst: 23 }\n")
        for source in OTHERS[:3]:
            clients = [edge(source) for _ in range(16)]
            answers = [get(c) for _ in range(4) for c in clients]
            equal(sum(a.status == 200 for a in answers), 23, f"let through, of 64, for {source}")
            equal({a.status for a in answers}, {200, 429}, "statuses")
            waits = {int(a.get("retry-after")) for a in answers if a.status == 429}
            check(all(3590 <= w <= 3600 for w in waits), f"Retry-After: {waits}")
            cores = [core["proxy"]["clients"] for core in e.proxy.status()["cores"]]
            check(all(cores) and sum(cores) == 16, f"connections by core: {cores}")
            for c in clients:
                c.close()
            until(lambda: e.count("connections") == 0, 5, "all have gone", pause=0.02)
        equal(e.count("rate_limited"), 3 * (64 - 23), "rate_limited")
        equal(sum(r["reason"] == "rate_limited" for r in e.log()), 3 * (64 - 23), "in the log")
        # Others know nothing of it; a reload doesn't forget it; a rate that goes is gone.
        with edge(OTHERS[3]) as other, edge(OTHERS[0]) as c:
            equal((get(other).status, get(c).status), (200, 429), "another, and one of them")
            e.use(http="      via: off\n      rate_limit: { rate: 1/h, burst: 23 }\n")
            equal((get(other).status, get(c).status), (200, 429), "after a reload")
            e.use()
            equal(get(c).status, 200, "without a limit")
        e.use(http=f"      trusted_proxies: [{OTHERS[0]}]\n      rate_limit: {{ rate: 1/h, burst: 2 }}\n")
        with edge(OTHERS[0]) as proxy, edge(OTHERS[4]) as liar:
            for client in ("192.0.2.1", "192.0.2.2"):
                more = f"X-Forwarded-For: 192.0.2.9, {client}\n"
                equal([get(proxy, more=more).status for _ in range(3)], [200, 200, 429], client)
            equal([get(liar, more=f"X-Forwarded-For: 192.0.2.{n}\n").status for n in range(3, 6)],
                  [200, 200, 429], "one who isn't trusted")


@case("duties: connections of a client are counted exactly over the cores", own=True)
def connections(_):
    with Edge() as e:
        e.use(listener="    limits: { per_client: { connections: 5 } }\n")
        source = OTHERS[0]
        for _ in range(20):
            held = [c for c in (enter(source) for _ in range(12)) if c]
            equal(len(held), 5, "connections that stand")
            equal(comes_in(OTHERS[1]), 200, "another client")
            held[2].close()
            until(lambda: e.count("connections") == 4, 5, "one has gone", pause=0.02)
            equal((comes_in(source), comes_in(OTHERS[1])), (200, 200), "in its place")
            for c in held:
                c.close()
            until(lambda: e.count("connections") == 0, 5, "all have gone", pause=0.02)
        equal(e.count("limited"), 20 * 7, "limited")
        equal(numbers(e.proxy.status(), "limits_untracked"), 0, "not looked after")


@case("duties: maintenance comes and goes by reload on connections that stand", own=True)
def maintenance(_):
    with Edge() as e:
        e.use()
        on = ("      maintenance: { body: \"Back at noon.\\n\", retry_after: 10m }\n")
        with edge() as c, edge(OTHERS[0]) as other:
            for _ in range(5):
                equal([get(x).status for x in (c, other)], [200, 200], "before")
                e.use(http=on)
                for x in (c, other):
                    a = get(x)
                    equal((a.status, a.body, a.get("retry-after"), a.get("connection")),
                          (503, b"Back at noon.\n", "600", None), "during it")
                head = c.send("HEAD /echo HTTP/1.1\nHost: a\n\n").answer("HEAD")
                equal((head.status, head.get("content-length")), (503, "14"), "HEAD")
                e.use(http=on.replace("{ ", "{ enabled: false, "))
            equal([get(x).status for x in (c, other)], [200, 200], "after it")
        with edge() as c:
            e.use(http=on)
            a = c.send("POST /echo HTTP/1.1\nHost: a\nContent-Length: 5\n\nhello").answer()
            equal((a.status, a.get("connection"), c.is_closed()), (503, "close", "fin"), "an upload")
        equal({r["reason"] for r in e.log() if r["status"] == 503}, {"maintenance"}, "reasons")


REDIRECTS = """\
        - match: { path_prefix: /old }
          redirect: { location: "/new${rest}${query}", status: 301 }
        - match: { path_prefix: /root }
          redirect: { location: "/${rest}", status: 302 }
        - match: { path_prefix: /secure }
          redirect: { location: "https://${host}${path}${query}" }
        - match: { path_prefix: /search }
          redirect: { location: "https://find.example/?q=${path}&${method}" }
        - match: { path_prefix: /api/ }
          upstream: scripted
          rewrite: { prefix: /echo/v2, host: "origin.example:81" }
        - match: { path_prefix: /strip }
          upstream: scripted
          rewrite: { prefix: / }
          headers:
            request:
              remove: [X-Secret]
              set: [{ name: X-Path, value: "${method} ${host} ${path}${query}" }]
              add: [{ name: X-More, value: "$${x} ${client_ip}" }]
            response: { set: [{ name: Server, value: "${listener}" }] }
        - upstream: scripted
"""


@case("duties: where redirects lead and what origins are asked for is not for the client to say",
      own=True)
def changes(_):
    hostile = ("%0d%0aSet-Cookie:%20a=b", "%0D%0A", "%00", "..", "%2e%2e/x", "a%2fb", "%5cevil.example",
               "\\evil.example", "a\tb", "a\rb", "a\0b", "\x85", "..;/x")
    with Edge() as e:
        e.use(http="      request_id: { trust: [10.78.0.3] }\n      traceparent: sampled\n",
              routes=REDIRECTS)
        with edge() as c:
            for path, status, location in (
                    ("/old", 301, "/new"),
                    ("/old/a%20b/?x=%0d%0aSet-Cookie:a=b", 301, "/new/a%20b/?x=%0d%0aSet-Cookie:a=b"),
                    ("//old//evil.example//", 301, "/new/evil.example/"),
                    ("/root//evil.example/", 302, "/evil.example/"),
                    ("/root", 302, "/"),
                    ("/root?//evil.example", 302, "/"),
                    ("/secure//x?//y", 308, "https://a/secure/x?//y"),
                    ("/search/@evil.example", 308,
                     "https://find.example/?q=/search/@evil.example&GET")):
                a = get(c, path)
                equal((a.status, a.all("location"), a.get("set-cookie")), (status, [location], None),
                      path)
            for path, seen in (("/api/x?y=//..", "/echo/v2/x?y=//.."), ("/api/", "/echo/v2/"),
                               ("/api//x//y", "/echo/v2/x/y"), ("/strip/echo", "/echo"),
                               ("/strip//echo//x", "/echo/x"), ("/strip?a", "/?a")):
                get(c, path)
                equal(e.world.scripted.seen[-1]["target"], seen, path)
        for path in ("/old/", "/root/", "/secure/", "/search/", "/api/", "/strip/"):
            for bad in hostile:
                asked = len(e.world.scripted.seen)
                with edge() as c:
                    a = c.send(f"GET {path}{bad} HTTP/1.1\r\nHost: a\r\n\r\n".encode("latin-1")).answer()
                equal((a.status, a.all("location"), len(e.world.scripted.seen)), (400, [], asked),
                      f"{path}{bad!r}")
        for host in ("evil.example\\@a", "a/b", "a b", "a%0d%0a", "@a", "a:x", ".."):
            with edge() as c:
                a = get(c, "/secure/x", host)
                equal((a.status, a.all("location")), (400, []), f"host {host!r}")
        with edge(OTHERS[0]) as c:
            a = get(c, "/strip/echo?q", "A:8090", "X-Secret: 1\nx-secret: 2\nX-Path: mine\nX-More: 1\n"
                    "X-Request-Id: from.here-1\ntraceparent: 00-0123456789abcdef0123456789abcdef-"
                    "0123456789abcdef-01\ntracestate: a=1\n")
            got = e.world.scripted.seen[-1]["headers"]
            low = {n.lower(): v for n, v in got}
            equal((a.get("server"), a.get("x-request-id")), ("edge", "from.here-1"), "answer")
            equal([v for n, v in got if n.lower() in ("x-secret", "x-path", "x-more")],
                  ["1", "GET a /strip/echo?q", f"${{x}} {OTHERS[0]}"], "fields")
            trace = low["traceparent"].split("-")
            equal((trace[1], trace[3], low["tracestate"]),
                  ("0123456789abcdef0123456789abcdef", "01", "a=1"), "a trace that goes on")
            check(trace[2] != "0123456789abcdef", "a parent of our own")
            equal(low["x-request-id"], "from.here-1", "the id that the origin sees")
        with edge(OTHERS[1]) as c:
            a = get(c, "/echo", more="X-Request-Id: forged\n")
            own = a.get("x-request-id")
            check(re.fullmatch("[0-9a-f]{32}", own), f"an id of our own: {own}")
        until(lambda: any(r.get("request_id") == own for r in e.log()), 5, "the id in the log")
        record = [r for r in e.log() if r.get("request_id") == "from.here-1"][0]
        equal(record["trace_id"], "0123456789abcdef0123456789abcdef", "the trace in the log")


@case("duties: what would send clients in a circle or anywhere is refused, with its place", own=True)
def refused(_):
    with Edge() as e:
        err = e.refused(f"  - name: edge\n    address: {OURS}:{EDGE}\n    http:\n      routes:\n"
                        "        - redirect: { location: \"${path}\" }\n"
                        "        - match: { path_prefix: /a }\n"
                        "          redirect: { location: \"https://${path}\" }\n"
                        "        - match: { path_prefix: /b }\n          upstream: scripted\n"
                        "          rewrite: { prefix: /x/../y }\n"
                        "          headers: { request: { set: [{ name: X, value: \"a\\r\\nB: c\" }] } }\n")
        first = e.text[:e.text.index("upstreams:\n")].count("\n") + 5
        for line, column, key, what in ((0, 33, "routes[0].redirect.location", "leads back"),
                                        (2, 33, "routes[1].redirect.location", "which host"),
                                        (5, 30, "routes[2].rewrite.prefix", "normal form"),
                                        (6, 57, "routes[2].headers.request.set[0].value", "printable")):
            check(re.search(rf":{first + line}:{column}: listeners\[\d+\]\.http\.{re.escape(key)}: .*{what}",
                            err), f"{first + line}:{column} {key} {what}, in:\n{err}")
        e.world.still_serves()
