"""Writes the octets of one body, as they came over the wire, to standard output."""
import shutil
import sys

if sys.argv[1] == "requests":
    import requests

    body = requests.get(sys.argv[2], headers={"Accept-Encoding": "gzip"}, stream=True, timeout=60).raw
    for chunk in body.stream(1 << 16, decode_content=False):
        sys.stdout.buffer.write(chunk)
else:
    import urllib.request

    request = urllib.request.Request(sys.argv[2], headers={"Accept-Encoding": "gzip"})
    shutil.copyfileobj(urllib.request.urlopen(request, timeout=60), sys.stdout.buffer)
