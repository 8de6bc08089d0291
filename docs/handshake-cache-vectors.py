#!/usr/bin/env python3
"""Follows the connections of handshake-cache-vectors.json by handshake-cache.md, with nothing but Python's library.

For each connection it reads the messages, keeps the transcript with what section 4 puts into it, and checks the extension on
both sides, the form of both Certificates and of the CertificateRequest, what both sides sign, both Finished, and the ticket that
the client shows next.
The sections named below are those of handshake-cache.md.
"""

import hashlib
import hmac
import json
import sys

CLIENT_HELLO, SERVER_HELLO, ENCRYPTED_EXTENSIONS, CERTIFICATE, SERVER_KEY_EXCHANGE = 1, 2, 8, 11, 12
CERTIFICATE_REQUEST, CERTIFICATE_VERIFY, FINISHED, CACHED_OBJECT = 13, 15, 20, 0xFD
EXTENDED_MASTER_SECRET, HANDSHAKE_CACHE = 23, 0xFF20
NAMED_CURVE, X25519, ED25519 = 3, 0x001D, 0x0807
TICKET_LABEL = b"EXPORTER-dunlin-handshake-cache"


class Reader:
    """Bytes, from the front."""

    def __init__(self, data):
        self.data = data

    def take(self, count):
        assert count <= len(self.data), "it ends too soon"
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def number(self, count):
        return int.from_bytes(self.take(count), "big")

    def vector(self, count):
        return self.take(self.number(count))

    def end(self):
        assert not self.data, "more than there should be"


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def expand_label(secret, label, context, length):
    """HKDF-Expand-Label (RFC 8446, section 7.1)."""
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + bytes([len(context)]) + context
    output, block, counter = b"", b"", 1
    while len(output) < length:
        block = hmac.digest(secret, block + info + bytes([counter]), "sha256")
        output, counter = output + block, counter + 1
    return output[:length]


def prf(secret, label, seed, length):
    """The PRF of TLS 1.2 with SHA-256 (RFC 5246, section 5)."""
    seed = label + seed
    output, state = b"", seed
    while len(output) < length:
        state = hmac.digest(secret, state, "sha256")
        output += hmac.digest(secret, state + seed, "sha256")
    return output[:length]


def fingerprint(typ, body):
    """Section 2."""
    return sha256(bytes([typ]), len(body).to_bytes(3, "big"), body)


def certificate_list(chain):
    """The body of a Certificate in its form of TLS 1.2."""
    entries = b"".join(len(der).to_bytes(3, "big") + der for der in chain)
    return len(entries).to_bytes(3, "big") + entries


# Ed25519 (RFC 8032, section 5.1). It is not in constant time, which these public signatures do not need.
P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ORDER = 2**252 + 27742317777372353535851937790883648493


def add(one, two):
    (x1, y1), (x2, y2) = one, two
    product = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + y1 * x2) * pow(1 + product, -1, P) % P
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, P) % P
    return x, y


def multiply(scalar, point):
    result = (0, 1)
    while scalar:
        if scalar & 1:
            result = add(result, point)
        point, scalar = add(point, point), scalar >> 1
    return result


def decode_point(data):
    y = int.from_bytes(data, "little")
    odd, y = y >> 255, y & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert (x * x - square) % P == 0, "no point of the curve"
    return (P - x if x & 1 != odd else x), y


BASE = decode_point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def is_signed(public_key, content, signature):
    scalar = int.from_bytes(signature[32:], "little")
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public_key + content).digest(), "little") % ORDER
    right = add(decode_point(signature[:32]), multiply(challenge, decode_point(public_key)))
    return len(signature) == 64 and scalar < ORDER and multiply(scalar, BASE) == right


def public_key(leaf):
    """The Ed25519 key in a certificate: what follows the algorithm in its SubjectPublicKeyInfo."""
    before = bytes.fromhex("302a300506032b6570032100")
    start = leaf.index(before) + len(before)
    return leaf[start:start + 32]


def extensions(reader):
    found = {}
    inside = Reader(reader.vector(2))
    while inside.data:
        typ = inside.number(2)
        assert typ not in found, "an extension twice"
        found[typ] = inside.vector(2)
    reader.end()
    return found


def client_hello(body):
    reader = Reader(body)
    reader.take(2 + 32)
    reader.vector(1), reader.vector(2), reader.vector(1)
    return extensions(reader)


def server_hello(body):
    reader = Reader(body)
    reader.take(2 + 32)
    reader.vector(1), reader.take(2 + 1)
    return extensions(reader)


def offer(data):
    """Section 3, in a ClientHello: the names of the server's fingerprints by their bits, and tickets."""
    reader = Reader(data)
    if not reader.data:
        return {}, []
    flags = reader.number(1)
    assert flags & ~3 == 0, "unknown flags"
    names = {bit: reader.take(8) for bit in (0, 1) if flags >> bit & 1}
    tickets = []
    while reader.data:
        tickets.append(reader.take(8))
    assert len(tickets) <= 2 and len(set(tickets)) == len(tickets)
    return names, tickets


def answer(data):
    """Section 3, in the answer: which messages of the server are abbreviated, and which ticket is used."""
    reader = Reader(data)
    if not reader.data:
        return 0, None
    flags, index = reader.number(1), reader.number(1)
    reader.end()
    assert flags & ~3 == 0
    return flags, None if index == 0xFF else index


def certificate(body):
    """The certificates of a Certificate of TLS 1.3; None if it is abbreviated (section 3)."""
    reader = Reader(body)
    assert reader.vector(1) == b"", "certificate_request_context"
    entries, chain = Reader(reader.vector(3)), []
    reader.end()
    while entries.data:
        chain.append(entries.vector(3))
        entries.vector(2)
    if chain == [b""]:
        return None
    assert all(chain), "an empty certificate among others"
    return chain


class Side:
    def __init__(self, name, identity):
        self.name = name
        self.chain = [bytes.fromhex(der) for der in identity["chain"]]
        self.fingerprint = fingerprint(CERTIFICATE, certificate_list(self.chain))
        self.public_key = public_key(self.chain[0])


class Known:
    """What the client has from the connections before."""

    def __init__(self):
        self.connections, self.abbreviated, self.ticket, self.request = 0, 0, None, None


class Connection:
    """One connection, message by message."""

    def __init__(self, sides, known, secrets):
        self.sides, self.known, self.secrets = sides, known, secrets
        self.transcript, self.randoms, self.abbreviated, self.finished = [], b"", {}, []

    def hash(self):
        return sha256(*self.transcript)

    def take(self, name, message):
        reader = Reader(message)
        typ = reader.number(1)
        body = reader.vector(3)
        reader.end()
        assert typ != CACHED_OBJECT, "never sent"
        handle = {
            CLIENT_HELLO: self.client_hello,
            SERVER_HELLO: self.server_hello,
            CERTIFICATE: self.certificate,
            CERTIFICATE_VERIFY: self.certificate_verify,
            FINISHED: self.check_finished,
        }
        handle |= self.handlers()
        # The fingerprint of the message, if the message is abbreviated.
        bound = handle.get(typ, lambda side, body: None)(self.sides[name], body)
        self.transcript.append(message)
        if bound is not None:
            # Section 4.
            self.transcript.append(bytes([CACHED_OBJECT, 0, 0, 32]) + bound)

    def client_hello(self, side, body):
        self.randoms += body[2:34]
        names, self.tickets = offer(client_hello(body)[HANDSHAKE_CACHE])
        if self.known.ticket is None:
            assert not names and not self.tickets, "nothing is known before the first connection"
            return
        named = {0: self.sides["server"].fingerprint[:8]}
        if self.known.request is not None:
            named[1] = self.known.request[:8]
        assert names == named
        assert self.tickets[0] == self.known.ticket, "not the ticket that both have derived"

    def answered(self, data):
        flags, index = answer(data)
        assert index is None or index < len(self.tickets)
        self.agreed = {"server": flags & 1, "request": flags & 2, "client": index is not None}

    def certificate(self, side, body):
        chain = self.chain(body)
        self.abbreviated[side.name] = chain is None
        if chain is None:
            assert self.agreed[side.name], "abbreviated, and not agreed"
            return side.fingerprint
        assert chain == side.chain

    def certificate_verify(self, side, body):
        reader = Reader(body)
        assert reader.number(2) == ED25519
        signature = reader.vector(2)
        reader.end()
        assert is_signed(side.public_key, self.signed(side), signature), f"the {side.name}'s CertificateVerify"

    def check_finished(self, side, body):
        assert hmac.compare_digest(body, self.verify_data(side)), f"the {side.name}'s Finished"
        self.finished.append(side.name)


class Tls13(Connection):
    ORDER = ["server", "client"]

    def handlers(self):
        return {ENCRYPTED_EXTENSIONS: self.encrypted_extensions}

    def server_hello(self, side, body):
        self.randoms += body[2:34]

    def encrypted_extensions(self, side, body):
        self.answered(extensions(Reader(body))[HANDSHAKE_CACHE])
        assert not self.agreed["request"], "there is none of TLS 1.3"

    def chain(self, body):
        chain = certificate(body)
        assert chain is not None or len(body) == 9
        return chain

    def signed(self, side):
        return b" " * 64 + f"TLS 1.3, {side.name} CertificateVerify".encode() + b"\0" + self.hash()

    def verify_data(self, side):
        secret = self.secrets[f"{side.name.upper()}_HANDSHAKE_TRAFFIC_SECRET"]
        return hmac.digest(expand_label(secret, b"finished", b"", 32), self.hash(), "sha256")

    def next_ticket(self):
        """Section 3, by the exporter of RFC 8446, section 7.5."""
        secret = expand_label(self.secrets["EXPORTER_SECRET"], TICKET_LABEL, sha256(), 32)
        return expand_label(secret, b"exporter", sha256(self.sides["client"].fingerprint), 8)


class Tls12(Connection):
    ORDER = ["client", "server"]

    def handlers(self):
        return {SERVER_KEY_EXCHANGE: self.server_key_exchange, CERTIFICATE_REQUEST: self.certificate_request}

    def server_hello(self, side, body):
        self.randoms += body[2:34]
        found = server_hello(body)
        assert EXTENDED_MASTER_SECRET in found, "section 5, rule 4"
        self.answered(found[HANDSHAKE_CACHE])

    def chain(self, body):
        if not body:
            return None
        reader = Reader(body)
        entries, chain = Reader(reader.vector(3)), []
        reader.end()
        while entries.data:
            chain.append(entries.vector(3))
        return chain

    def certificate_request(self, side, body):
        self.abbreviated["request"] = not body
        if not body:
            assert self.agreed["request"], "abbreviated, and not agreed"
            return self.known.request
        self.known.request = fingerprint(CERTIFICATE_REQUEST, body)

    def server_key_exchange(self, side, body):
        reader = Reader(body)
        assert reader.number(1) == NAMED_CURVE and reader.number(2) == X25519
        assert len(reader.vector(1)) == 32
        params = body[:len(body) - len(reader.data)]
        assert reader.number(2) == ED25519
        signature = reader.vector(2)
        reader.end()
        assert is_signed(side.public_key, self.randoms + params, signature), "the server's ServerKeyExchange"

    def signed(self, side):
        return b"".join(self.transcript)

    def verify_data(self, side):
        return prf(self.secrets["CLIENT_RANDOM"], f"{side.name} finished".encode(), self.hash(), 12)

    def next_ticket(self):
        """Section 3, by the exporter of RFC 5705, section 4."""
        context = self.sides["client"].fingerprint
        seed = self.randoms + len(context).to_bytes(2, "big") + context
        return prf(self.secrets["CLIENT_RANDOM"], TICKET_LABEL, seed, 8)


def main(path):
    with open(path, encoding="utf-8") as file:
        vectors = json.load(file)
    sides = {name: Side(name, vectors["identities"][name]) for name in ("client", "server")}
    versions = {"TLS 1.3": (Tls13, Known()), "TLS 1.2": (Tls12, Known())}
    for told in vectors["connections"]:
        version, known = versions[told["version"]]
        secrets = {label: bytes.fromhex(secret) for label, secret in told["secrets"].items()}
        connection = version(sides, known, secrets)
        for message in told["messages"]:
            connection.take(message["from"], bytes.fromhex(message["message"]))
        assert connection.finished == version.ORDER
        known.ticket = connection.next_ticket()
        known.connections += 1
        known.abbreviated += all(connection.abbreviated.values())
    for name, (_, known) in versions.items():
        print(f"{name}: {known.connections} connections, {known.abbreviated} with every possible abbreviation")


if __name__ == "__main__":
    main(sys.argv[1])
