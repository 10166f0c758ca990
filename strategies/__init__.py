"""The server half of every method, and the pure functions under them."""
