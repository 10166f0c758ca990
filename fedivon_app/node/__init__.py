"""`fedivon node`: Flower's SuperNode, whose ClientApps start in milliseconds.

Flower's own SuperNode starts a process for every message, which imports flwr, torch and the app
anew, and waits for fixed times in between. Here a process that has imported flwr and torch, the
zygote, is forked for a run's bundle, that one imports the app and is forked for every message, and
the waits follow what happens. Connection, TLS, keys and heartbeats are Flower's, as is what runs in
the last fork.

    supernode   the node: Flower's main, with three of its names replaced
    waits       how long an idle node waits before it asks again
    tasks       sees one message through, whatever becomes of its ClientApp
    warm        the node's end of the zygote: starts it, and starts it anew
    orders      what the two say to each other
    zygote      the warm process, which is forked for every bundle
    bundle      what such a fork does: it imports the app, and is forked for every message
    family      forking, and word of the ends
    seclusion   keeps a bundle's process from every network but the way to its node
    flower      the names of flwr that all of this rests on, and the way back to the stock node
"""
