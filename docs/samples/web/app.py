"""A web application behind the gateway. It greets each client by the identity that the client has proven.

It listens on loopback only: any client that reaches its port could send the gateway's headers. Usage: app.py [PORT]
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        client = self.headers.get("Dunlin-Client-Identity", "stranger")
        body = f"Hello, {client}!\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080), App)
print(f"listening on {server.server_address[0]}:{server.server_address[1]}", flush=True)
server.serve_forever()
