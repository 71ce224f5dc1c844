"""Between other proxies: PROXY headers from and to HAProxy, nginx and curl; TLS passed on by name."""

import json
import os
import socket
import ssl

from cases import case
from cases_life import Fresh
from cases_reload import put, read, running
from proc import Failure, Process, check, equal, sh, until, wait_port
from world import KERNEL, OURS

IN, IN_V2, IN_V6, CHECKED = 7001, 7002, 7003, 7004  # HAProxy's, in front of us
OUT, OUT_NGINX = 7101, 7102                         # origins that want a header
TLS_A, TLS_B, TLS_TOLD = 7201, 7202, 7203           # origins that speak TLS
WEB, RAW, TOLD1, TOLD2, TOLD_NGINX, TOLD_RAW, SNI = range(8100, 8107)

FROM = f"proxy_protocol: {{ from: [{KERNEL}], required: false }}"
LISTENERS = f"""
  - {{ name: in_web, address: "{OURS}:{WEB}", {FROM}, http: {{ routes: [{{ upstream: scripted }}] }} }}
  - {{ name: in_raw, address: "{OURS}:{RAW}", {FROM}, tunnel: {{ upstream: scripted }} }}
  - {{ name: told1, address: "{OURS}:{TOLD1}", {FROM}, http: {{ routes: [{{ upstream: told1 }}] }} }}
  - {{ name: told2, address: "{OURS}:{TOLD2}", {FROM}, http: {{ routes: [{{ upstream: told2 }}] }} }}
  - {{ name: told3, address: "{OURS}:{TOLD_NGINX}", {FROM}, http: {{ routes: [{{ upstream: nginx }}] }} }}
  - {{ name: told4, address: "{OURS}:{TOLD_RAW}", {FROM}, tunnel: {{ upstream: told2 }} }}
  - name: sni
    address: {OURS}:{SNI}
    tunnel:
      sni:
        - {{ match: a.test, upstream: tls_a }}
        - {{ match: "*.b.test", upstream: tls_b }}
        - {{ match: a.test, alpn: [told], upstream: tls_told }}
"""
UPSTREAMS = f"""
  - {{ name: told1, endpoints: ["{KERNEL}:{OUT}"], proxy_protocol: v1, health: {{ path: /, interval: 300ms, timeout: 300ms }} }}
  - {{ name: told2, endpoints: ["{KERNEL}:{OUT}"], proxy_protocol: v2, health: {{ path: /, interval: 300ms, timeout: 300ms }} }}
  - {{ name: nginx, endpoints: ["{KERNEL}:{OUT_NGINX}"], proxy_protocol: v2, health: {{ path: /, interval: 300ms, timeout: 300ms }} }}
  - {{ name: tls_a, endpoints: ["{KERNEL}:{TLS_A}"] }}
  - {{ name: tls_b, endpoints: ["{KERNEL}:{TLS_B}"] }}
  - {{ name: tls_told, endpoints: ["{KERNEL}:{TLS_TOLD}"], proxy_protocol: v1 }}
"""

HAPROXY = f"""
global
    maxconn 200
    stats socket {{folder}}/haproxy.sock
defaults
    timeout connect 3s
    timeout client 10s
    timeout server 10s
listen v1
    mode tcp
    bind 127.0.0.1:{IN}
    server s {OURS}:{WEB} source {KERNEL} send-proxy
listen v2
    mode tcp
    bind 127.0.0.1:{IN_V2}
    server s {OURS}:{RAW} source {KERNEL} send-proxy-v2 proxy-v2-options unique-id,crc32c
    unique-id-format %[uuid()]
listen v6
    mode tcp
    bind [::1]:{IN_V6}
    server s {OURS}:{WEB} source {KERNEL} send-proxy-v2
listen checked
    mode tcp
    bind 127.0.0.1:{CHECKED}
    option httpchk
    http-check send meth GET uri /echo ver HTTP/1.1 hdr Host check
    server s {OURS}:{WEB} source {KERNEL} send-proxy-v2 check check-send-proxy inter 200ms
frontend out
    mode http
    bind {KERNEL}:{OUT} accept-proxy
    http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port]"
"""

NGINX = f"""
daemon off;
master_process off;
worker_processes 1;
user root;
pid {{folder}}/front.pid;
error_log {{folder}}/front.err warn;
events {{{{ worker_connections 256; }}}}
http {{{{
    access_log off;
    client_body_temp_path {{folder}}/b2;
    proxy_temp_path {{folder}}/p2;
    fastcgi_temp_path {{folder}}/f2;
    uwsgi_temp_path {{folder}}/u2;
    scgi_temp_path {{folder}}/s2;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_certificate {{folder}}/cert.pem;
    ssl_certificate_key {{folder}}/key.pem;
    server {{{{
        listen {KERNEL}:{OUT_NGINX} proxy_protocol;
        location / {{{{ return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr"; }}}}
    }}}}
    server {{{{
        listen {KERNEL}:{TLS_A} ssl http2;
        root {{folder}}/files;
        location = / {{{{ return 200 "a $ssl_server_name $ssl_protocol"; }}}}
    }}}}
    server {{{{
        listen {KERNEL}:{TLS_B} ssl;
        location / {{{{ return 200 "b $ssl_server_name $ssl_protocol"; }}}}
    }}}}
    server {{{{
        listen {KERNEL}:{TLS_TOLD} ssl proxy_protocol;
        location / {{{{ return 200 "told $ssl_server_name $proxy_protocol_addr"; }}}}
    }}}}
}}}}
"""


class Between(Fresh):
    """Two cores of ours between HAProxy in front and HAProxy, nginx and scripted origins behind."""

    def __init__(self):
        super().__init__(cores="0, 1", queues="2")
        self.others = []

    def __enter__(self):
        super().__enter__()
        try:
            self.begin(self.world)
        except BaseException:
            self.__exit__(Failure)
            raise
        return self

    def begin(self, world):
        folder = self.path = world.folder
        sh("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
           "-days", "2", "-subj", "/CN=a.test", "-keyout", f"{folder}/key.pem",
           "-out", f"{folder}/cert.pem")
        for name, text in (("haproxy.cfg", HAPROXY), ("front.conf", NGINX)):
            put(os.path.join(folder, name), text.format(folder=folder))
        self.start("haproxy", "-db", "-f", f"{folder}/haproxy.cfg")
        self.start("nginx", "-p", folder, "-e", f"{folder}/front.err", "-c", f"{folder}/front.conf")
        wait_port(KERNEL, OUT, process=self.others[0])
        wait_port(KERNEL, TLS_A, process=self.others[1])
        text = read(world.config).replace("upstreams:\n", LISTENERS + "upstreams:" + UPSTREAMS, 1)
        put(world.config, text)
        world.proxy.admin("reload")
        running(world.proxy)

    def start(self, *command):
        self.others.append(Process(list(command), os.path.join(self.path, f"{command[0]}.out")))

    def __exit__(self, *error):
        for process in self.others:
            process.end()
        super().__exit__(*error)

    @property
    def proxy(self):
        return self.world.proxy

    def listener(self, name):
        return [one for one in self.proxy.status()["listeners"] if one["name"] == name][0]

    def log(self):
        with open(os.path.join(self.path, "access.log"), encoding="utf-8") as f:
            return [json.loads(line) for line in f]


def curl(*words):
    _, out, _ = sh("curl", "-sS", "--max-time", "10", "-k", *words)
    return out


def forwarded(text):
    """X-Forwarded-For as the scripted origin saw it."""
    return dict(json.loads(text)["headers"]).get("X-Forwarded-For")


def recorded(b, path):
    return until(lambda: [r["client"] for r in b.log() if r["target"] == path], 5, "a record")[-1]


@case("PROXY headers of HAProxy and curl name the client: to origins, in the log, over IPv6", own=True)
def headers_in(_):
    with Between() as b:
        for _ in range(4):
            equal(forwarded(curl(f"http://127.0.0.1:{IN}/echo?v1")), "127.0.0.1", "through HAProxy, v1")
        check(recorded(b, "/echo?v1").startswith("127.0.0.1:"), "the log's client, v1")
        # A tunnel passes what stands behind a v2 header with TLVs.
        check("/echo?v2" in curl(f"http://127.0.0.1:{IN_V2}/echo?v2"), "through the tunnel")
        equal(forwarded(curl(f"http://[::1]:{IN_V6}/echo?v6")), "::1", "over IPv6")
        check(recorded(b, "/echo?v6").startswith("[::1]:"), "the log's client, v6")
        equal(forwarded(curl("--haproxy-protocol", f"http://{OURS}:{WEB}/echo?curl")), KERNEL, "curl's own")
        equal(forwarded(curl(f"http://{OURS}:{WEB}/echo?none")), KERNEL, "without a header")
        # HAProxy's checks are LOCAL: they are its own requests.
        until(lambda: recorded(b, "/echo").startswith(KERNEL), 5, "a check's record")
        until(lambda: sh("curl", "-sf", f"http://127.0.0.1:{CHECKED}/echo?up", ok=False)[0] == 0, 5,
              "HAProxy finds us up")
        with socket.create_connection((OURS, WEB), 5) as s:
            s.sendall(b"PROXY TCP4 1.2.3.4\r\n")
            try:
                equal(s.recv(1), b"reset", "after a bad header")
            except ConnectionResetError:
                pass
        equal(b.listener("in_web")["turned_away"]["proxy_malformed"], 1, "malformed headers")


@case("origins that want PROXY headers get them: HAProxy and nginx, v1 and v2, probes too", own=True)
def headers_out(_):
    with Between() as b:
        for port in (TOLD1, TOLD2):
            client, _, to, to_port = curl(f"http://{OURS}:{port}/").split()
            equal((client, to, to_port), (KERNEL, OURS, str(port)), f"what HAProxy was told at {port}")
        equal(curl(f"http://{OURS}:{TOLD_NGINX}/").split()[::2], [KERNEL, OURS], "what nginx was told")
        # All through: the header that came in is the header that goes out.
        with socket.create_connection((OURS, TOLD_NGINX), 5) as s:
            s.sendall(b"PROXY TCP6 2001:db8::7 2001:db8::8 4444 443\r\n"
                      b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            got = b""
            while piece := s.recv(65536):
                got += piece
            equal(got.count(b"2001:db8::7 4444 2001:db8::8"), 2, "both requests of that client")
        with socket.create_connection((OURS, TOLD_RAW), 5) as s:
            s.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.8 4444 443\r\n"
                      b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            got = b""
            while piece := s.recv(65536):
                got += piece
            check(b"192.0.2.7 4444 192.0.2.8 443" in got, lambda: f"through the tunnel: {got!r}")

        def healthy():
            ups = {u["name"]: u for u in b.proxy.status()["upstreams"]}
            return all(ups[n]["endpoints"][0]["probe"] == "ok" for n in ("told1", "told2", "nginx"))
        until(healthy, 5, "probes that are understood")
        front = read(os.path.join(b.path, "front.err")) if os.path.exists(os.path.join(b.path, "front.err")) else ""
        check("broken header" not in front, lambda: f"nginx complains:\n{front[-1000:]}")


def handshake(name, alpn=None, low=None):
    """(protocol, the answer to GET /) of a TLS connection to the listener that passes it on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(alpn)
    if low:
        context.maximum_version = low
    with socket.create_connection((OURS, SNI), 5) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(raw, server_hostname=name) as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            got = b""
            while piece := s.recv(65536):
                got += piece
            return s.version(), got.rsplit(b"\r\n", 1)[-1].decode()


def reset_by(data, port=SNI):
    with socket.create_connection((OURS, port), 5) as s:
        s.sendall(data)
        try:
            return s.recv(100)
        except ConnectionResetError:
            return None


@case("TLS is passed on by name and protocol: curl, OpenSSL and Python against nginx", own=True)
def passthrough(_):
    with Between() as b:
        to = f"{OURS}:{SNI}:{OURS}"
        at = ["--connect-to", f"::{OURS}:{SNI}"]
        equal(curl(*at, "https://a.test/"), "a a.test TLSv1.3", "by its name")
        equal(curl(*at, "--tls-max", "1.2", "https://a.test/"), "a a.test TLSv1.2", "TLS 1.2")
        equal(curl(*at, "--http2", "-w", " %{http_version}", "https://A.TEST/"), "a a.test TLSv1.3 2", "HTTP/2")
        equal(curl(*at, "https://x.y.b.test/"), "b x.y.b.test TLSv1.3", "by its suffix")
        equal(handshake("a.test", ["told", "http/1.1"])[1], f"told a.test {KERNEL}", "by its protocol")
        _, out, _ = sh("openssl", "s_client", "-connect", f"{OURS}:{SNI}", "-servername", "a.test", "-tls1_3",
                       "-alpn", "http/1.1", input=b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                       ok=False)
        check("ALPN protocol: http/1.1" in out and "CN = a.test" in out, lambda: f"{to}: {out[-1500:]}")
        name, digest = b.world.file(8 << 20)
        target = os.path.join(b.path, "got")
        curl(*at, "-o", target, f"https://a.test/{name}")
        _, out, _ = sh("sha256sum", target)
        equal(out.split()[0], digest, "8 MiB through it")

        for wrong in ("b.test", "c.test", None):
            try:
                handshake(wrong)
                check(False, f"{wrong} was served")
            except OSError:
                pass
        equal(reset_by(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), None, "plain HTTP")
        equal(reset_by(b"\x16\x03\x01\x00\x04\x02\x00\x00\x00"), None, "a ServerHello")
        away = b.listener("sni")["turned_away"]
        equal((away["hello_unmatched"], away["hello_not_tls"], away["hello_malformed"]), (3, 1, 1), "turned away")

        # The hello in segments of one byte, and in the list of connections while it stands.
        raw = socket.create_connection((OURS, SNI), 5)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reads, writes = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(reads, writes, server_hostname="a.test")
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            pass
        for byte in writes.read():
            raw.sendall(bytes([byte]))
        while True:
            reads.write(raw.recv(65536))
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                pass
        raw.sendall(writes.read())
        conns = json.loads(b.proxy.admin("conns", "--listener", "sni", "--json")[1])
        one = [c for c in conns["connections"] if c["sni"]]
        equal([(c["sni"], c["upstream"], c["state"]) for c in one], [("a.test", "tls_a", "tunnel")], "conns")
        raw.close()
        until(lambda: [r for r in b.log() if r["listener"] == "sni" and r["host"] == "x.y.b.test"
                       and r["reason"] == "ok"], 5, "a record of a tunnel")
