"""Fetches URLs in turn with requests or urllib as they come; one JSON line each."""
import base64
import json
import sys


def by_requests(url):
    import requests

    r = requests.get(url, stream=True, timeout=60)
    return r.status_code, dict(r.headers), r.raw.read(decode_content=False)


def by_urllib(url):
    import urllib.error
    import urllib.request

    try:
        r = urllib.request.urlopen(url, timeout=60)
    except urllib.error.HTTPError as e:
        r = e
    return r.status, dict(r.headers), r.read()


fetch = {"requests": by_requests, "urllib": by_urllib}[sys.argv[1]]
for url in sys.argv[2:]:
    status, headers, body = fetch(url)
    print(json.dumps({"url": url, "status": status, "headers": headers, "body": base64.b64encode(body).decode()}))
