#!/usr/bin/env python3
"""Decodes protected datagrams of DTLS 1.3 with TLS_CHACHA20_POLY1305_SHA256, with nothing but Python's library.

Input: JSON with "secrets" ("client" and "server": the first application traffic secrets) and "datagrams" (each "from" and
"datagram"), in hexadecimal. Datagrams of other epochs than 3 are left out. Output: a line for each record, with its sender, its
connection ID, its sequence number, and its content: data, an ACK, NewConnectionId, RequestConnectionId, another message, or a message
of a return routability check. Sources: RFC 9147 for records, messages and connection IDs, RFC 9853 for return routability checks,
RFC 8439 for the cipher, RFC 8446 for the key schedule.
"""

import hashlib
import hmac
import json
import sys


def expand_label(secret, label, length):
    """HKDF-Expand-Label with an empty context (RFC 8446, section 7.1; the prefix of RFC 9147, section 5.9)."""
    label = b"dtls13" + label
    info = length.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    output, block, counter = b"", b"", 1
    while len(output) < length:
        block = hmac.digest(secret, block + info + bytes([counter]), "sha256")
        output, counter = output + block, counter + 1
    return output[:length]


def chacha20_block(key, counter, nonce):
    """RFC 8439, section 2.3."""

    def quarter(state, a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            mixed = state[z] ^ state[x]
            state[z] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFFFFFF

    def words(data):
        return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]

    start = words(b"expand 32-byte k") + words(key) + [counter] + words(nonce)
    state = list(start)
    for _ in range(10):
        for column in range(4):
            quarter(state, column, 4 + column, 8 + column, 12 + column)
        for diagonal in range(4):
            quarter(
                state,
                diagonal,
                4 + (diagonal + 1) % 4,
                8 + (diagonal + 2) % 4,
                12 + (diagonal + 3) % 4,
            )
    return b"".join(((x + y) & 0xFFFFFFFF).to_bytes(4, "little") for x, y in zip(state, start))


def poly1305(key, message):
    """RFC 8439, section 2.5."""
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for i in range(0, len(message), 16):
        block = message[i : i + 16]
        total = (total + int.from_bytes(block + b"\1", "little")) * r % ((1 << 130) - 5)
    return ((total + int.from_bytes(key[16:], "little")) & ((1 << 128) - 1)).to_bytes(16, "little")


def open_aead(key, nonce, data, sealed):
    """ChaCha20-Poly1305 (RFC 8439, section 2.8)."""
    text, tag = sealed[:-16], sealed[-16:]

    def padded(part):
        return part + bytes(-len(part) % 16)

    mac = padded(data) + padded(text) + len(data).to_bytes(8, "little") + len(text).to_bytes(8, "little")
    assert poly1305(chacha20_block(key, 0, nonce)[:32], mac) == tag, "the record is not authentic"
    stream = b"".join(chacha20_block(key, 1 + i, nonce) for i in range((len(text) + 63) // 64))
    return bytes(a ^ b for a, b in zip(text, stream))


class Direction:
    """The records of one side in epoch 3."""

    def __init__(self, secret, id_len):
        self.key = expand_label(secret, b"key", 32)
        self.iv = expand_label(secret, b"iv", 12)
        self.number_key = expand_label(secret, b"sn", 32)
        self.id_len = id_len
        self.expected = 0

    def datagram(self, datagram):
        """Yields connection ID, sequence number, type and content of each record (RFC 9147, sections 4 and 4.2.3)."""
        while datagram:
            flags = datagram[0]
            assert flags >> 5 == 1, "no unified header"
            if flags & 3 != 3:
                return
            id_len = self.id_len if flags & 0x10 else 0
            number_at, number_len = 1 + id_len, 2 if flags & 8 else 1
            header_len = number_at + number_len + (2 if flags & 4 else 0)
            body_len = len(datagram) - header_len
            if flags & 4:
                body_len = int.from_bytes(datagram[header_len - 2 : header_len], "big")
            body = datagram[header_len : header_len + body_len]
            # RFC 9147, section 4.2.3: the mask of ChaCha20 takes counter and nonce from the ciphertext.
            mask = chacha20_block(self.number_key, int.from_bytes(body[:4], "little"), body[4:16])
            header = bytearray(datagram[:header_len])
            for i in range(number_len):
                header[number_at + i] ^= mask[i]
            number = self.reconstruct(bytes(header[number_at : number_at + number_len]))
            nonce = bytes(a ^ b for a, b in zip(self.iv, number.to_bytes(12, "big")))
            inner = open_aead(self.key, nonce, bytes(header), body).rstrip(b"\0")
            self.expected = max(self.expected, number + 1)
            yield bytes(header[1:number_at]), number, inner[-1], inner[:-1]
            datagram = datagram[header_len + body_len :]

    def reconstruct(self, low):
        """RFC 9147, section 4.2.2: the number that is closest to the expected one."""
        size = 1 << (8 * len(low))
        base = self.expected - self.expected % size + int.from_bytes(low, "big")
        return min((base - size, base, base + size), key=lambda n: (n < 0, abs(n - self.expected)))


def ids(body):
    """NewConnectionId (RFC 9147, section 9)."""
    length = int.from_bytes(body[:2], "big")
    rest, found = body[2 : 2 + length], []
    while rest:
        found.append(rest[1 : 1 + rest[0]])
        assert len(found[-1]) == rest[0], "half a connection ID"
        rest = rest[1 + rest[0] :]
    (usage,) = body[2 + length :]
    return {0: "cid_immediate", 1: "cid_spare"}[usage], found


def told(typ, content):
    if typ == 23:
        return "data " + content.hex()
    if typ == 26:
        assert int.from_bytes(content[:2], "big") == len(content) - 2 and len(content) % 16 == 2
        return f"ack of {len(content) // 16}"
    if typ == 21:
        return "alert " + content.hex()
    if typ == 27:
        # RFC 9853, section 4: type and cookie.
        assert len(content) == 9
        name = {0: "path_challenge", 1: "path_response", 2: "path_drop"}[content[0]]
        return f"{name} {content[1:].hex()}"
    assert typ == 22, f"type {typ}"
    # RFC 9147, section 5.2: type, length, message_seq, fragment_offset, fragment_length.
    message, length = content[0], int.from_bytes(content[1:4], "big")
    assert content[6:9] == b"\0\0\0" and content[9:12] == content[1:4] and len(content) == 12 + length
    if message == 9:
        (count,) = content[12:]
        return f"request_connection_id {count}"
    if message == 10:
        usage, found = ids(content[12:])
        return f"new_connection_id {usage} " + ",".join(id.hex() for id in found)
    return f"message {message}"


def main():
    with open(sys.argv[1]) as file:
        exchange = json.load(file)
    sides = {
        side: Direction(bytes.fromhex(exchange["secrets"][side]), exchange["id_len"][side])
        for side in ("client", "server")
    }
    for sent in exchange["datagrams"]:
        datagram = bytes.fromhex(sent["datagram"])
        if datagram[0] >> 5 == 1:
            for id, number, typ, content in sides[sent["from"]].datagram(datagram):
                print(sent["from"], id.hex() or "-", number, told(typ, content))


main()
