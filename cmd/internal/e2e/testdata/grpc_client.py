"""A gRPC client of grpc_server.py. Arguments: host and port of the server, PEM file to trust."""
import sys

import grpc

target, ca = sys.argv[1:]
with open(ca, "rb") as f:
    channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(f.read()))
print(channel.unary_unary("/Echo/Once")(b"hello", timeout=20).decode())
print(b" ".join(channel.stream_stream("/Echo/Stream")(iter([b"a", b"b", b"c"]), timeout=20)).decode())
try:
    channel.unary_unary("/Echo/None")(b"", timeout=20)
except grpc.RpcError as error:
    print(error.code().name)
