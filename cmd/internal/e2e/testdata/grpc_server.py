"""A gRPC server that returns what it gets. Arguments: address, certificate, key. Prints its port."""
import sys
from concurrent import futures

import grpc


class Echo(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method == "/Echo/Once":
            return grpc.unary_unary_rpc_method_handler(lambda message, _: message)
        if call.method == "/Echo/Stream":
            return grpc.stream_stream_rpc_method_handler(lambda messages, _: messages)
        return None


address, cert, key = sys.argv[1:]
server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Echo(),))
with open(cert, "rb") as c, open(key, "rb") as k:
    credentials = grpc.ssl_server_credentials([(k.read(), c.read())])
print(server.add_secure_port(address + ":0", credentials), flush=True)
server.start()
server.wait_for_termination()
