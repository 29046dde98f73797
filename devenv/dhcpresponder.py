"""A DHCP server on one network device, for recordings of the real kube-vip. Requires Linux and root.

It gives the first free address, or the one that a client requests.
"""

import asyncio
import socket
import struct
from collections.abc import Sequence
from typing import Final

DISCOVER, OFFER, REQUEST, ACK = 1, 2, 3, 5
SERVER: Final = "10.9.0.2"
LEASE_SECONDS: Final = 86_400
MAGIC: Final = b"\x63\x82\x53\x63"
_HEADERS: Final = 14 + 20 + 8
"""Length of the Ethernet, IP and UDP headers."""
_IPV4: Final = 0x0800


class DhcpResponder:
    """Answers requests on a device. Use as a context manager in a running event loop."""

    def __init__(self, device: str, addresses: Sequence[str]) -> None:
        self.answers = True
        """Whether it responds."""
        self._device = device
        self._addresses = addresses
        self._leases: dict[bytes, str] = {}
        """By hardware address."""
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_IPV4))

    def __enter__(self) -> "DhcpResponder":
        self._socket.bind((self._device, _IPV4))
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._on_readable)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()

    def _on_readable(self) -> None:
        frame = self._socket.recv(4096)
        if self.answers and _is_request(frame):
            self._respond(frame[_HEADERS:])

    def _respond(self, message: bytes) -> None:
        options = _options_of(message)
        kind = (options.get(53) or b"\0")[0]
        if kind not in {DISCOVER, REQUEST}:
            return
        hardware = message[28:34]
        requested = options.get(50)
        lease = self._lease(hardware, socket.inet_ntoa(requested) if requested else "")
        reply = _reply(message, lease, OFFER if kind == DISCOVER else ACK)
        self._socket.send(_frame(hardware, reply))

    def _lease(self, hardware: bytes, requested: str) -> str:
        taken = {address for owner, address in self._leases.items() if owner != hardware}
        if requested in self._addresses and requested not in taken:
            self._leases[hardware] = requested
        if hardware not in self._leases:
            self._leases[hardware] = next(address for address in self._addresses if address not in taken)
        return self._leases[hardware]


def _is_request(frame: bytes) -> bool:
    """Return whether a frame is a UDP datagram to port 67 with a DHCP message."""
    return len(frame) > _HEADERS + 240 and frame[23] == socket.IPPROTO_UDP and frame[36:38] == b"\0\x43"


def _options_of(message: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    rest = message[240:]
    while rest and rest[0] != 255:  # the end
        if rest[0] == 0:  # padding
            rest = rest[1:]
            continue
        found[rest[0]] = rest[2 : 2 + rest[1]]
        rest = rest[2 + rest[1] :]
    return found


def _reply(message: bytes, lease: str, kind: int) -> bytes:
    server = socket.inet_aton(SERVER)
    fixed = struct.pack("!BBBB4sHH", 2, 1, 6, 0, message[4:8], 0, 0x8000)
    nowhere = b"\0" * 4
    head = fixed + nowhere + socket.inet_aton(lease) + server + nowhere
    options = {
        53: bytes([kind]),
        54: server,
        51: struct.pack("!I", LEASE_SECONDS),
        1: socket.inet_aton("255.255.0.0"),
        3: server,
    }
    encoded = b"".join(bytes([code, len(value)]) + value for code, value in options.items())
    return head + message[28:44] + b"\0" * 192 + MAGIC + encoded + b"\xff"


def _frame(hardware: bytes, content: bytes) -> bytes:
    """Return an Ethernet frame with a UDP datagram to a client that has no address yet."""
    udp = struct.pack("!HHHH", 67, 68, 8 + len(content), 0) + content
    source, target = socket.inet_aton(SERVER), socket.inet_aton("255.255.255.255")
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0, source, target)
    checked = header[:10] + struct.pack("!H", _checksum(header)) + header[12:]
    return hardware + b"\x02\0\0\0\0\x01" + struct.pack("!H", _IPV4) + checked + udp


def _checksum(header: bytes) -> int:
    total: int = sum(struct.unpack("!10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
