"""Plain TCP: one socket, or one for bulk and one for anchors. What the link gives to who asks for nothing more."""

import socket
import threading

import end

# What one call to the system moves at most.
CALL = 1 << 20


def configured(connection):
    """Without Nagle's algorithm, as all peers here."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def fill(connection, room):
    """Reads until `room` is full; False where the peer has closed instead."""
    while room:
        count = connection.recv_into(room, min(len(room), CALL))
        if not count:
            return False
        room = room[count:]
    return True


def receive(chosen, held):
    """Reads each connection's messages to their places: offset and length in 16 bytes, and the payload."""
    listener = socket.create_server((chosen.ip, 0))

    def serve(connection):
        head = bytearray(16)
        while fill(connection, memoryview(head)):
            at, length = (int.from_bytes(head[i : i + 8], "little") for i in (0, 8))
            fill(connection, memoryview(held)[at : at + length])
            connection.sendall(b"k")

    def accept():
        while True:
            connection = configured(listener.accept()[0])
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    end.receive({"address": listener.getsockname()}, held)


def send(chosen, held):
    """Sends bulk on the first socket and anchors on the last; where there is one, an order has only one of both."""
    address = tuple(end.hear()["address"])
    sockets = [configured(socket.create_connection(address)) for _ in range(chosen.sockets)]

    def post(kind, length):
        connection = sockets[0 if kind == "bulk" else -1]
        here, there = end.place(chosen, kind)

        def carry():
            connection.sendall(there.to_bytes(8, "little") + length.to_bytes(8, "little"))
            connection.sendall(memoryview(held)[here : here + length])

        thread = threading.Thread(target=carry)
        thread.start()

        def wait():
            thread.join()
            assert connection.recv(1) == b"k"

        return wait

    end.send(chosen, held, post)


if __name__ == "__main__":
    CHOSEN = end.options()
    {"receive": receive, "send": send}[CHOSEN.role](CHOSEN, end.memory(CHOSEN))
