"""Exits 0 if the server at a URL says that it is well: health.py URL [CA]."""

import ssl
import sys
import urllib.request

url, *ca = sys.argv[1:]
trust = ssl.create_default_context(cafile=ca[0]) if ca else None
urllib.request.urlopen(f"{url}/health", timeout=3, context=trust)
