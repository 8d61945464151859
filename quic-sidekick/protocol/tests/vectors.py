"""Recomputes vectors.json from the values of its fields, with Python's standard library alone.

python3 vectors.py FILE exits with 0 if all values agree; otherwise it exits with 1 and reports each
difference. It shares nothing with the Rust code: it follows the specification, down to X25519
(RFC 7748), ChaCha20-Poly1305 (RFC 8439) and Noise.
"""

import hashlib
import hmac
import ipaddress
import itertools
import json
import struct
import sys

P25519 = 2**255 - 19
P1305 = 2**130 - 5
PSUM = 2**32 - 5

# ---- primitives


def x25519(secret, public):
    k = bytearray(secret)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    k = int.from_bytes(k, "little")
    x1 = int.from_bytes(public, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, x1, 1
    swapped = 0
    for t in reversed(range(255)):
        bit = k >> t & 1
        if bit != swapped:
            x2, z2, x3, z3 = x3, z3, x2, z2
        swapped = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a, c * b, a * a, b * b
        x3, z3 = (da + cb) ** 2 % P25519, x1 * (da - cb) ** 2 % P25519
        x2, z2 = aa * bb % P25519, (aa - bb) * (aa + 121665 * (aa - bb)) % P25519
    if swapped:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P25519 - 2, P25519) % P25519).to_bytes(32, "little")


def public_key(secret):
    return x25519(secret, (9).to_bytes(32, "little"))


def chacha20(key, counter, nonce):
    state = list(struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce))
    work = state[:]

    def add_xor_rotate(a, b, d, bits):
        work[a] = (work[a] + work[b]) & 0xFFFFFFFF
        x = work[d] ^ work[a]
        work[d] = (x << bits | x >> 32 - bits) & 0xFFFFFFFF

    rounds = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    rounds += [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for _ in range(10):
        for a, b, c, d in rounds:
            add_xor_rotate(a, b, d, 16)
            add_xor_rotate(c, d, b, 12)
            add_xor_rotate(a, b, d, 8)
            add_xor_rotate(c, d, b, 7)
    return struct.pack("<16I", *((x + y) & 0xFFFFFFFF for x, y in zip(work, state)))


def poly1305(key, data):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for i in range(0, len(data), 16):
        total = (total + int.from_bytes(data[i : i + 16] + b"\1", "little")) * r % P1305
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def seal(key, number, associated, plain):
    """ChaCha20-Poly1305 with Noise's nonce: four zero bytes, then the number in little-endian."""
    nonce = struct.pack("<4xQ", number)
    stream = b"".join(chacha20(key, 1 + i, nonce) for i in range(len(plain) // 64 + 1))
    cipher = bytes(a ^ b for a, b in zip(plain, stream))
    padded = b"".join(part + bytes(-len(part) % 16) for part in (associated, cipher))
    lengths = struct.pack("<QQ", len(associated), len(cipher))
    return cipher + poly1305(chacha20(key, 0, nonce)[:32], padded + lengths)


def hkdf(chaining_key, data):
    def mac(key, data):
        return hmac.new(key, data, hashlib.blake2s).digest()

    secret = mac(chaining_key, data)
    first = mac(secret, b"\1")
    return first, mac(secret, first + b"\2")


# ---- the wire


def address(text, port):
    return ipaddress.ip_address(text).packed + struct.pack(">H", port)


def family(text):
    return bytes([ipaddress.ip_address(text).version])


def flow(f):
    source = address(f["source_address"], f["source_port"])
    return family(f["source_address"]) + source + address(f["destination_address"], f["destination_port"])


def terms(f):
    names = ("threshold", "every_packets", "every_us", "identifier_offset", "filter")
    return struct.pack(">BHIHB", *(f[name] for name in names))


def path_head(first, f):
    return bytes([first]) + bytes.fromhex(f["handle"]) + b"Sidekick\1" + bytes.fromhex(f["nonce"])


def mask(f):
    """The same fields, with handle and nonce as an answer carries them."""
    mac = bytes.fromhex(f["cookie"])[4:]
    masked = {}
    for name in ("handle", "nonce"):
        plain = bytes.fromhex(f[name])
        masked[name] = bytes(a ^ b for a, b in zip(plain, itertools.cycle(mac))).hex()
    return {**f, **masked}


def head(kind, f):
    return struct.pack(">BI", 0x10 | kind, f["session"])


def raw(f, *names):
    return b"".join(bytes.fromhex(f[name]) for name in names)


def range_of(r):
    """Bit 0 says that a range has a datagram before it, bit 1 that it has one behind it, bit 2 that
    its copies are to come in parts, and bit 3 that the one behind it is in it, too."""
    flags = (r["after"] is not None) | (r["before"] is not None) << 1
    flags |= r["in_parts"] << 2 | r["inclusive"] << 3
    return struct.pack(">BII", flags, r["after"] or 0, r["before"] or 0)


ENCODERS = {
    "marker": lambda f: (path_head(5, f) + struct.pack(">H", f["reply_port"])).ljust(128, b"\0"),
    "answer": lambda f: path_head(6, mask(f))
    + family(f["proxy_address"])
    + address(f["proxy_address"], f["proxy_port"])
    + flow(f)
    + raw(f, "cookie"),
    "hello": lambda f: head(1, f) + flow(f) + raw(f, "cookie") + bytes([f["pattern"]]) + raw(f, "handshake"),
    "retry": lambda f: head(2, f) + raw(f, "echo", "cookie"),
    "accept": lambda f: head(3, f) + raw(f, "handshake"),
    "refuse": lambda f: head(4, f) + raw(f, "echo") + bytes([f["refusal"]]),
    "unknown session": lambda f: head(5, f),
    "sealed": lambda f: head(6, f) + struct.pack(">I", f["sequence"]) + raw(f, "ciphertext"),
    "hello payload": lambda f: terms(f).ljust(64, b"\0"),
    "accept payload": lambda f: struct.pack(">I", f["session"]) + terms(f) + bytes([f["kept_sums"], f["orders"]]),
    "quack": lambda f: struct.pack(
        ">BHHIIIIB",
        *(1, f["epoch"], f["token"], f["age_us"], f["first"], f["last"], f["count"], len(f["sums"])),
    )
    + struct.pack(">%dI" % len(f["sums"]), *f["sums"]),
    "short quack": lambda f: struct.pack(">BHH", 6, f["count"], f["last"])
    + struct.pack(">%dI" % len(f["sums"]), *f["sums"]),
    "poll": lambda f: struct.pack(">BHHB", 2, f["epoch"], f["token"], f["wanted_sums"]),
    "new epoch": lambda f: struct.pack(">BH", 3, f["epoch"]),
    "epoch": lambda f: struct.pack(">BH", 4, f["epoch"]),
    "bye": lambda f: b"\5",
    "repeat": lambda f: head(7, f)
    + struct.pack(">HBBB", f["number"], f["range"] | f["part"] << 4, f["index"], f["total"])
    + raw(f, "datagram"),
    "keep": lambda f: struct.pack(">BH", 7, f["age_ms"]) + raw(f, "handle", "nonce", "cookie"),
    "kept": lambda f: struct.pack(">BH", 8, f["age_ms"]),
    "request": lambda f: struct.pack(">BH", 9, f["number"]) + b"".join(map(range_of, f["ranges"])),
    "nothing": lambda f: struct.pack(">BHH", 10, f["number"], f["ranges"]),
    "tail": lambda f: struct.pack(">BII", 11, f["last"], f["passed"]),
    "protect": lambda f: struct.pack(
        ">BHBHB", 12, f["share"], f["window"], f["flush_us"], f["list"]
    ),
    "schedule": lambda f: struct.pack(
        ">BHHHII", 13, f["epoch"], f["token"], f["every_packets"], f["every_us"], f["interval_us"]
    ),
    "list": lambda f: struct.pack(">BIHH", 14, f["first"], f["gap_us"], f["wait_us"])
    + struct.pack(">%dI" % len(f["identifiers"]), *f["identifiers"]),
    "parity": lambda f: head(8, f)
    + struct.pack(">HIBB", f["number"], f["first"], f["window"], len(f["identifiers"]))
    + struct.pack(">%dI" % len(f["identifiers"]), *f["identifiers"])
    + raw(f, "symbol"),
    "symbol": lambda f: struct.pack(
        ">BHIBB", 15, f["number"], f["first"], f["window"], f["part"]
    ) + raw(f, "symbol"),
    "link": lambda f: struct.pack(">BH", 16, f["token"]) + raw(f, "cookie"),
    "linked": lambda f: struct.pack(">BH", 17, f["token"])
    + raw(f, "cookie")
    + (struct.pack(">H", f["newest"]) + raw(f, "arrived") if "newest" in f else b""),
    "relay": lambda f: struct.pack(
        ">BHBBB", 18, f["number"], f["part"], f["class"], f["wait_ms"]
    ) + raw(f, "datagram"),
}

# ---- the handshake


class Symmetric:
    """Noise's SymmetricState, for protocol names that are longer than a hash."""

    def __init__(self, name):
        self.hash = self.chaining_key = hashlib.blake2s(name.encode()).digest()
        self.key, self.number = None, 0

    def mix_hash(self, data):
        self.hash = hashlib.blake2s(self.hash + data).digest()

    def mix_key(self, data):
        self.chaining_key, self.key = hkdf(self.chaining_key, data)
        self.number = 0

    def encrypt_and_hash(self, plain):
        out = plain if self.key is None else seal(self.key, self.number, self.hash, plain)
        self.number += 1
        self.mix_hash(out)
        return out


def prologue(h):
    def end(which):
        ip = ipaddress.ip_address(h[which + "_address"])
        mapped = ip.packed if ip.version == 6 else bytes(10) + b"\xff\xff" + ip.packed
        return mapped + struct.pack(">H", h[which + "_port"])

    return b"Sidekick v1" + struct.pack(">I", h["session"]) + end("source") + end("destination")


def handshake(h, check):
    static, e, re = raw(h, "proxy_secret"), raw(h, "sender_ephemeral_secret"), raw(h, "proxy_ephemeral_secret")
    pinned = h["noise"] == "Noise_NK_25519_ChaChaPoly_BLAKE2s"
    if not pinned and h["noise"] != "Noise_NX_25519_ChaChaPoly_BLAKE2s":
        check("Noise protocol", h["noise"].encode(), b"")
    check("proxy_public", public_key(static), raw(h, "proxy_public"))
    check("prologue", prologue(h), raw(h, "prologue"))
    hello_payload = ENCODERS["hello payload"](h["hello_fields"])
    accept_payload = ENCODERS["accept payload"](h["accept_fields"])
    check("hello_payload", hello_payload, raw(h, "hello_payload"))
    check("accept_payload", accept_payload, raw(h, "accept_payload"))

    state = Symmetric(h["noise"])
    state.mix_hash(prologue(h))
    if pinned:
        state.mix_hash(public_key(static))
    state.mix_hash(public_key(e))
    if pinned:
        state.mix_key(x25519(e, public_key(static)))
    first = public_key(e) + state.encrypt_and_hash(hello_payload)

    state.mix_hash(public_key(re))
    state.mix_key(x25519(re, public_key(e)))
    second = public_key(re)
    if not pinned:
        second += state.encrypt_and_hash(public_key(static))
        state.mix_key(x25519(static, public_key(e)))
    second += state.encrypt_and_hash(accept_payload)

    check("hello_handshake", first, raw(h, "hello_handshake"))
    check("accept_handshake", second, raw(h, "accept_handshake"))
    check("handshake_hash", state.hash, raw(h, "handshake_hash"))
    hello = dict(h, pattern=int(pinned), handshake=first.hex())
    check("hello_datagram", ENCODERS["hello"](hello), raw(h, "hello_datagram"))
    accept = dict(session=h["session"], handshake=second.hex())
    check("accept_datagram", ENCODERS["accept"](accept), raw(h, "accept_datagram"))

    keys = dict(zip(("sender", "proxy"), hkdf(state.chaining_key, b"")))
    sessions = {"sender": h["accept_fields"]["session"], "proxy": h["session"]}
    for side, key in keys.items():
        check(side + "_key", key, raw(h, side + "_key"))
    for s in h["sealed"]:
        if "message" in s:
            message = s["message"]
            name, plain = message["name"], ENCODERS[message["kind"]](message["fields"])
            check(name, plain, raw(message, "bytes"))
        else:
            name, plain = s["name"], raw(s, "plaintext")
        text = seal(keys[s["from"]], s["sequence"], b"", plain).hex()
        sealed = dict(session=sessions[s["from"]], sequence=s["sequence"], ciphertext=text)
        check("sealed " + name, ENCODERS["sealed"](sealed), raw(s, "datagram"))
        check("session of " + name, sealed["session"], s["session"])


def power_sums(identifiers, n):
    return [sum(pow(x, k, PSUM) for x in identifiers) % PSUM for k in range(1, n + 1)]


def identifier(v):
    payload, offset = raw(v, "payload"), v["identifier_offset"]
    is_ours = payload[:1] in (b"\5", b"\6") and payload[21:29] == b"Sidekick"
    if not payload or is_ours or v["filter"] == 1 and payload[0] & 0x80:
        return None
    if offset == 0xFFFE:
        value = 0x811C9DC5
        for byte in payload:
            value = (value ^ byte) * 0x01000193 % 2**32
        return value
    start = len(payload) - 4 if offset == 0xFFFF else offset
    if start < 0 or start + 4 > len(payload):
        return None
    value = int.from_bytes(payload[start : start + 4], "big")
    return None if offset == 0xFFFF and value == 0 else value


def times(a, b):
    """The product of two elements of the field with 256 elements."""
    product = 0
    for bit in range(8):
        product ^= (a << bit) * (b >> bit & 1)
    for bit in range(14, 7, -1):
        product ^= (0x11D << bit - 8) * (product >> bit & 1)
    return product


def inverse(a):
    return next(b for b in range(256) if times(a, b) == 1)


def repair_symbol(v):
    datagrams = [bytes.fromhex(datagram) for datagram in v["datagrams"]]
    length = 2 + max(map(len, datagrams))
    symbol, coefficients = bytes(length), []
    for offset, datagram in enumerate(datagrams):
        position = (v["first"] + offset) % 2**32
        coefficient = inverse(128 + v["number"] % 128 ^ position % 128)
        source = (struct.pack(">H", len(datagram)) + datagram).ljust(length, b"\0")
        symbol = bytes(s ^ times(coefficient, byte) for s, byte in zip(symbol, source))
        coefficients.append(coefficient)
    return coefficients, symbol


def main(path):
    with open(path, encoding="ascii") as file:
        vectors = json.load(file)
    compared, differences = 0, 0

    def check(what, computed, found):
        nonlocal compared, differences
        compared += 1
        if computed != found:
            differences += 1
            show = [x.hex() if isinstance(x, bytes) else x for x in (computed, found)]
            print("%s: this script makes %s, the file has %s." % (what, *show), file=sys.stderr)

    for part in ("datagrams", "payloads", "messages"):
        kinds = set()
        for v in vectors[part]:
            check(v["name"], ENCODERS[v["kind"]](v["fields"]), raw(v, "bytes"))
            kinds.add(v["kind"])
        print("%s: %d of %s" % (part, len(vectors[part]), ", ".join(sorted(kinds))))
    for h in vectors["handshakes"]:
        handshake(h, lambda what, *rest: check("%s, %s" % (h["name"], what), *rest))
    for v in vectors["identifiers"]:
        check("identifier of " + v["name"], identifier(v), v["identifier"])
    for v in vectors["power_sums"]:
        check("power sums of " + v["name"], power_sums(v["identifiers"], len(v["sums"])), v["sums"])
    for v in vectors["repair_symbols"]:
        coefficients, symbol = repair_symbol(v)
        check("coefficients of " + v["name"], coefficients, v["coefficients"])
        check("repair symbol of " + v["name"], symbol, raw(v, "symbol"))
    print("%d values compared, %d differ" % (compared, differences))
    return 1 if differences or compared < 100 else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: vectors.py FILE")
    sys.exit(main(sys.argv[1]))
