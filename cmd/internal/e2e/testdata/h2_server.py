"""A server that resets each stream of HTTP/2 with HTTP_1_1_REQUIRED, and answers over HTTP/1.1.

Arguments: address, certificate, key. Prints its port.
"""
import socket
import ssl
import sys
import threading

import h2.connection
import h2.errors
import h2.events

address, cert, key = sys.argv[1:]
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(cert, key)
context.set_alpn_protocols(["h2", "http/1.1"])


def serve_http2(conn):
    state = h2.connection.H2Connection(h2.connection.H2Configuration(client_side=False))
    state.initiate_connection()
    conn.sendall(state.data_to_send())
    while data := conn.recv(65536):
        for event in state.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                state.reset_stream(event.stream_id, h2.errors.ErrorCodes.HTTP_1_1_REQUIRED)
        conn.sendall(state.data_to_send())


def serve_http1(conn):
    reader = conn.makefile("rb")
    while line := reader.readline():
        length = 0
        while (field := reader.readline().strip()):
            name, _, value = field.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        body = line.split()[0] + b" " + reader.read(length)
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def serve(raw):
    try:
        with context.wrap_socket(raw, server_side=True) as conn:
            (serve_http2 if conn.selected_alpn_protocol() == "h2" else serve_http1)(conn)
    except (OSError, ssl.SSLError):
        pass


listener = socket.create_server((address, 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
