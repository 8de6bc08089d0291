#!/usr/bin/env python3
"""Follows the connections of handshake-cache-vectors.json by handshake-cache.md, with nothing but Python's library.

For each connection it reads the messages, keeps the transcript with what section 4 puts into it, and checks the extension on
both sides, the form of both Certificates, both CertificateVerify and both Finished, and the ticket that the client shows next.
The sections named below are those of handshake-cache.md.
"""

import hashlib
import hmac
import json
import sys

CLIENT_HELLO, SERVER_HELLO, ENCRYPTED_EXTENSIONS, CERTIFICATE = 1, 2, 8, 11
CERTIFICATE_REQUEST, CERTIFICATE_VERIFY, FINISHED, CACHED_OBJECT = 13, 15, 20, 0xFD
HANDSHAKE_CACHE = 0xFF20
ED25519 = 0x0807


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


def fingerprint(chain):
    """Section 2."""
    entries = b"".join(len(der).to_bytes(3, "big") + der for der in chain)
    body = len(entries).to_bytes(3, "big") + entries
    return sha256(bytes([CERTIFICATE]), len(body).to_bytes(3, "big"), body)


# Ed25519 (RFC 8032, section 5.1), for signatures that everybody may see: not in constant time.
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


def offer(data):
    """Section 3, in a ClientHello: the name of the server's fingerprint, and tickets."""
    reader = Reader(data)
    if not reader.data:
        return None, []
    flags = reader.number(1)
    assert flags & ~1 == 0, "flags of TLS 1.3"
    name = reader.take(8) if flags & 1 else None
    tickets = []
    while reader.data:
        tickets.append(reader.take(8))
    assert len(tickets) <= 2 and len(set(tickets)) == len(tickets)
    return name, tickets


def answer(data):
    """Section 3, in the answer: whether the server's Certificate is abbreviated, and which ticket is used."""
    reader = Reader(data)
    if not reader.data:
        return False, None
    flags, index = reader.number(1), reader.number(1)
    reader.end()
    assert flags & ~1 == 0
    return flags == 1, None if index == 0xFF else index


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
        self.fingerprint = fingerprint(self.chain)
        self.public_key = public_key(self.chain[0])


class Connection:
    """One connection of TLS 1.3, message by message."""

    def __init__(self, sides, ticket, secrets):
        self.sides, self.ticket, self.secrets = sides, ticket, secrets
        self.transcript, self.hello, self.abbreviated, self.finished = [], {}, {}, []

    def hash(self):
        return sha256(*self.transcript)

    def take(self, name, message):
        reader = Reader(message)
        typ = reader.number(1)
        body = reader.vector(3)
        reader.end()
        side = self.sides[name]
        handle = {
            CLIENT_HELLO: self.client_hello,
            ENCRYPTED_EXTENSIONS: self.encrypted_extensions,
            CERTIFICATE: self.certificate,
            CERTIFICATE_VERIFY: self.certificate_verify,
            FINISHED: self.check_finished,
        }.get(typ, lambda side, body: None)
        assert typ != CACHED_OBJECT, "never sent"
        handle(side, body)
        self.transcript.append(message)
        if typ == CERTIFICATE and self.abbreviated[side.name]:
            # Section 4.
            self.transcript.append(bytes([CACHED_OBJECT, 0, 0, 32]) + side.fingerprint)

    def client_hello(self, side, body):
        name, tickets = offer(client_hello(body)[HANDSHAKE_CACHE])
        if self.ticket is None:
            assert name is None and not tickets, "nothing is known before the first connection"
        else:
            assert name == self.sides["server"].fingerprint[:8]
            assert tickets[0] == self.ticket, "not the ticket that both have derived"
        self.tickets = tickets

    def encrypted_extensions(self, side, body):
        server, index = answer(extensions(Reader(body))[HANDSHAKE_CACHE])
        assert index is None or index < len(self.tickets)
        self.agreed = {"server": server, "client": index is not None}

    def certificate(self, side, body):
        chain = certificate(body)
        self.abbreviated[side.name] = chain is None
        if chain is None:
            assert self.agreed[side.name], "abbreviated, and not agreed"
            assert len(body) == 9
        else:
            assert chain == side.chain

    def certificate_verify(self, side, body):
        reader = Reader(body)
        assert reader.number(2) == ED25519
        signature = reader.vector(2)
        reader.end()
        context = f"TLS 1.3, {side.name} CertificateVerify".encode()
        content = b" " * 64 + context + b"\0" + self.hash()
        assert is_signed(side.public_key, content, signature), f"the {side.name}'s CertificateVerify"

    def check_finished(self, side, body):
        secret = self.secrets[f"{side.name.upper()}_HANDSHAKE_TRAFFIC_SECRET"]
        key = expand_label(secret, b"finished", b"", 32)
        assert hmac.compare_digest(body, hmac.digest(key, self.hash(), "sha256")), f"the {side.name}'s Finished"
        self.finished.append(side.name)

    def next_ticket(self):
        """Section 3, by the exporter of RFC 8446, section 7.5."""
        label = b"EXPORTER-dunlin-handshake-cache"
        secret = expand_label(self.secrets["EXPORTER_SECRET"], label, sha256(), 32)
        return expand_label(secret, b"exporter", sha256(self.sides["client"].fingerprint), 8)


def main(path):
    with open(path, encoding="utf-8") as file:
        vectors = json.load(file)
    sides = {name: Side(name, vectors["identities"][name]) for name in ("client", "server")}
    ticket, count, both = None, 0, 0
    for told in vectors["connections"]:
        secrets = {label: bytes.fromhex(secret) for label, secret in told["secrets"].items()}
        connection = Connection(sides, ticket, secrets)
        for message in told["messages"]:
            connection.take(message["from"], bytes.fromhex(message["message"]))
        assert connection.finished == ["server", "client"]
        ticket = connection.next_ticket()
        count += 1
        both += all(connection.abbreviated.values())
    print(f"TLS 1.3: {count} connections, {both} with both certificates abbreviated")


if __name__ == "__main__":
    main(sys.argv[1])
