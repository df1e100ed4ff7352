"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"
# Below the range that systems take ports of outgoing connections from: a port stays free while its broker is down.
LOWEST, HIGHEST = 20_000, 32_000
TRIES_MAX = 1_000


def is_free(port: int) -> bool:
    """Nobody listens on it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT can be listened on again
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(nodes: int) -> tuple[int, ...]:
    """The first of a pair of free ports (clients, controllers) for each node, at random places."""
    dice = random.SystemRandom()
    for _ in range(TRIES_MAX):
        first = dice.randrange(LOWEST, HIGHEST, 2)
        ports = tuple(range(first, first + 2 * nodes, 2))
        if all(is_free(port) and is_free(port + 1) for port in ports):
            return ports
    raise OSError(f"no {nodes} pairs of free ports between {LOWEST} and {HIGHEST}")
