"""TLS at a listener: the clients that are about, certificates that change, what the log and metrics say."""

import os
import re
import ssl
import socket
import time

from cases import case
from cases_duties import EDGE, Edge
from cases_reload import running
from proc import Failure, check, equal, sh, until
from world import OURS

TICKETS = "openssl rand -base64 80 | tr -d '\\n'"


class Tls(Edge):
    """An edge listener with certificates of its own."""

    def __enter__(self):
        super().__enter__()
        self.certs = os.path.join(self.world.folder, "tls")
        os.mkdir(self.certs)
        self.make("ec", "edge.test")
        self.make("rsa", "edge.test", "rsa:2048")
        self.make("other", "other.test")
        return self

    def path(self, name):
        return os.path.join(self.certs, name)

    def make(self, name, host, key="ec -pkeyopt ec_paramgen_curve:P-256", days=365):
        sh("sh", "-c", f"openssl req -x509 -newkey {key} -nodes -days {days} -subj /CN={name} "
           f"-addext subjectAltName=DNS:{host} -keyout {self.path(name)}.key.new "
           f"-out {self.path(name)}.pem.new 2>&1")
        os.rename(self.path(name) + ".key.new", self.path(name) + ".key")
        os.rename(self.path(name) + ".pem.new", self.path(name) + ".pem")

    def pair(self, name, more=""):
        return f"        - {{ cert: {self.path(name)}.pem, key: {self.path(name)}.key{more} }}\n"

    def serve(self, more="", certificates=None):
        certificates = certificates or [self.pair(n) for n in ("ec", "rsa", "other")]
        return self.use("    tls:\n      certificates:\n" + "".join(certificates) + more)

    def use(self, *arguments):
        try:
            return super().use(*arguments)
        except Failure:  # a file that has changed is a version of its own
            time.sleep(0.5)
            return running(self.proxy)

    def curl(self, *arguments, host="edge.test", ok=True):
        return sh("curl", "-sSk", "--max-time", "20", "--resolve", f"{host}:{EDGE}:{OURS}",
                  *arguments, f"https://{host}:{EDGE}/py/echo", ok=ok)

    def s_client(self, *arguments, said="Q\n"):
        return sh("sh", "-c", f"printf '{said}' | timeout 20 openssl s_client -connect {OURS}:{EDGE} "
                  + " ".join(arguments) + " 2>&1", ok=False)[1]

    def subject(self, *arguments):
        found = re.search(r"subject=(?:O = [^,]*, )?CN = (\S+)", self.s_client(*arguments))
        return found and found.group(1)

    def tls_status(self, name):
        return sum(core["tls"][name] for core in self.proxy.status()["cores"])

    def failed(self, reason):
        return sum(core["tls"]["failed"][reason] for core in self.proxy.status()["cores"])


@case("tls: curl, by 1.2 and 1.3, with either certificate", own=True)
def clients(_):
    with Tls() as t:
        t.serve()
        for version, suite in (("1.2", "--tls-max"), ("1.3", "--tlsv1.3")):
            arguments = [suite, "1.2"] if suite == "--tls-max" else [suite]
            _, out, _ = t.curl("-w", "%{http_code} %{ssl_verify_result}", "-o", "/dev/null", *arguments)
            equal(out.split()[0], "200", f"TLS {version}")
        check("CN = ec" in t.s_client("-servername", "edge.test"), "the EC certificate")
        check("CN = rsa" in t.s_client("-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"),
              "the RSA certificate")
        check("CN = other" in t.s_client("-servername", "other.test"), "the other name's")
        out = t.s_client("-servername", "edge.test", "-alpn", "h2,http/1.1")
        check("ALPN protocol: http/1.1" in out, "http/1.1 by ALPN")
        check("Secure Renegotiation IS supported" in t.s_client("-tls1_2"), "secure renegotiation")
        last = t.log()[-1]
        equal(last["tls_version"], "TLSv1.3", "in the log")
        equal(last["sni"], "edge.test", "in the log")
        equal(last["tls_resumed"], False, "in the log")
        check(last["tls_cipher"].startswith("TLS_AES"), "in the log")


@case("tls: large bodies both ways are what they were", own=True)
def bodies(_):
    with Tls() as t:
        t.use("    tls:\n      certificates:\n" + t.pair("ec"), "",
              "        - upstream: app\n")
        name, digest = t.world.file(50_000_000)
        _, out, _ = sh("sh", "-c", f"curl -sSk --max-time 60 https://{OURS}:{EDGE}/{name} | sha256sum")
        equal(out.split()[0], digest, "the file's SHA-256")


@case("tls: plain HTTP is told, a stranger is counted, and neither reaches the origin", own=True)
def strangers(_):
    with Tls() as t:
        t.serve("      handshake_timeout: 1s\n")
        _, out, _ = sh("curl", "-sS", "--max-time", "10", "-i", f"http://{OURS}:{EDGE}/")
        check(out.startswith("HTTP/1.1 400 ") and "HTTPS" in out, out)
        equal(t.failed("plain_http"), 1, "plain_http")
        with socket.create_connection((OURS, EDGE), 5) as s:
            s.sendall(b"SSH-2.0-x\r\n")
            check(s.recv(100)[0] == 21, "an alert")
        equal(t.failed("not_tls"), 1, "not_tls")
        with socket.create_connection((OURS, EDGE), 5) as s:
            s.settimeout(5)
            try:
                s.recv(1)
            except ConnectionResetError:
                pass
        equal(t.failed("timeout"), 1, "timeout")
        _, out, _ = sh("curl", "-sS", "http://127.0.0.1:9901/metrics")
        check('millrace_tls_handshakes_failed_total{core="0",reason="plain_http"}' in out, "metrics")
        check(re.search(r'millrace_tls_certificate_not_after_seconds\{listener="edge",file="\S*ec.pem",'
                        r'name="edge.test",type="EC"\} 1?[0-9]{9,}', out), "the expiry")
        check('millrace_blocking_completed_total{class="tls_handshake"}' in out, "the pool")


@case("tls: a certificate that changes is used, and nobody who is connected notices", own=True)
def hot(_):
    with Tls() as t:
        t.serve()
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(socket.create_connection((OURS, EDGE), 5)) as s:
            def ask():
                s.sendall(b"GET /py/echo HTTP/1.1\r\nHost: edge.test\r\n\r\n")
                return s.recv(65536).startswith(b"HTTP/1.1 200 ")
            check(ask(), "before")
            def shown():
                out = t.s_client("-servername", "edge.test")
                return re.search("BEGIN CERTIFICATE-----([^-]*)", out).group(1)
            first = shown()
            t.make("ec", "edge.test")
            until(lambda: shown() != first, 10, "the new certificate")
            check(ask(), "after")
            # A key that doesn't belong to it: the one before stays, in the log it says why.
            sh("openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out",
               t.path("ec.key"))
            until(lambda: "doesn't belong" in t.proxy.output(), 10, "the log's word")
            check("CN = ec" in t.s_client("-servername", "edge.test"), "the old one stays")
            check(ask(), "and after that")


@case("tls: sessions are resumed across a reload, by the keys of a file and by no others", own=True)
def resumed(_):
    with Tls() as t:
        keys, session = t.path("tickets"), t.path("session")
        sh("sh", "-c", f"{TICKETS} > {keys}; echo >> {keys}")
        t.serve(f"      tickets: {{ keys: {keys} }}\n")
        said = "GET /py/echo HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n"
        for version in ("-tls1_2", "-tls1_3"):
            out = t.s_client(version, "-ign_eof", "-sess_out", session, said=said)
            check("New, TLS" in out, out[-2000:])
            t.serve(f"      tickets: {{ keys: {keys} }}\n      curves: P-256:X25519\n")
            t.serve(f"      tickets: {{ keys: {keys} }}\n")
            out = t.s_client(version, "-ign_eof", "-sess_in", session, said=said)
            check("Reused, TLS" in out, out[-2000:])
            # Keys of others open nothing.
            sh("sh", "-c", f"cp {keys} {keys}.old; {TICKETS} > {keys}")
            t.serve(f"      tickets: {{ keys: {keys} }}\n      curves: P-256\n")
            out = t.s_client(version, "-ign_eof", "-sess_in", session, said=said)
            check("New, TLS" in out, out[-2000:])
            # Second in the file they open again.
            sh("sh", "-c", f"{{ {TICKETS}; echo; cat {keys}.old; }} > {keys}")
            t.serve(f"      tickets: {{ keys: {keys} }}\n")
            out = t.s_client(version, "-ign_eof", "-sess_in", session, said=said)
            check("Reused, TLS" in out, out[-2000:])
            sh("sh", "-c", f"mv {keys}.old {keys}")
            t.serve(f"      tickets: {{ keys: {keys} }}\n      curves: X25519\n")


@case("tls: what is wrong with files is said with line and column, and nothing changes", own=True)
def wrong(_):
    with Tls() as t:
        t.serve()
        t.make("old", "edge.test")
        sh("sh", "-c", f"cp {t.path('old')}.pem {t.path('mixed')}.pem; "
           f"cp {t.path('ec')}.key {t.path('mixed')}.key; echo nonsense > {t.path('junk')}.pem; "
           f"cp {t.path('ec')}.key {t.path('junk')}.key")
        head = f"  - name: edge\n    address: {OURS}:{EDGE}\n    tls:\n"
        tail = "    http: { routes: [ { upstream: scripted } ] }\n"
        for name, text in (("absent", "absent.pem can't be read: No such file"),
                           ("mixed", "the key doesn't belong to the certificate"),
                           ("junk", "there is no certificate in it")):
            err = t.refused(head, "      certificates:\n", t.pair(name), tail)
            check(re.search(r":\d+:\d+: listeners\[\S*\]\.tls\.certificates\[0\]", err) and text in err, err)
        err = t.refused(head, "      ciphers: NOT-A-CIPHER\n      certificates:\n", t.pair("ec"), tail)
        check("tls.ciphers: OpenSSL knows none" in err, err)
        check("CN = ec" in t.s_client("-servername", "edge.test"), "it goes on")


@case("tls: two thousand handshakes, half of them broken off, leave nothing behind", own=True)
def storm(_):
    with Tls() as t:
        t.serve("      handshake_timeout: 2s\n")
        sh("sh", "-c", f"""
            for i in 1 2 3 4; do
                /usr/bin/python3 - $i <<'END' &
import random, socket, ssl, sys
random.seed(sys.argv[1])
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
for n in range(500):
    s = socket.create_connection(("{OURS}", {EDGE}), 10)
    if n % 2:
        i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
        k = c.wrap_bio(i, o)
        try:
            k.do_handshake()
        except ssl.SSLWantReadError:
            pass
        hello = o.read()
        s.sendall(hello[:random.randrange(len(hello) + 1)])
        s.close()
        continue
    with c.wrap_socket(s) as k:
        k.sendall(b"GET /py/echo HTTP/1.1\\r\\nHost: edge.test\\r\\nConnection: close\\r\\n\\r\\n")
        assert k.recv(12) == b"HTTP/1.1 200", n
END
            done; wait $(jobs -p)""", timeout=120)
        until(lambda: t.tls_status("sessions") == 0, 20, "no session left")
        equal(t.tls_status("jobs"), 0, "jobs in the pool")
        check(t.tls_status("handshakes_done") >= 1000, "all the whole ones")
