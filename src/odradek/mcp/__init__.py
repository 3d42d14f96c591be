"""Tools for agents, over a folder or a broker: a server of the Model Context Protocol, which only reads.

    tool.py          what a tool is: its schemas, and a call of it with its limits
    answer.py        an answer: bounded, with a cursor, and hints what to ask next
    untrusted.py     what strangers wrote, escaped and apart from the rest
    scan.py          records by offset, time, pattern and condition, for a limited time
    *_tools.py       the tools
    server.py        all of it for the package `mcp`; http.py over HTTP

Nothing is written, not even a lock or an index. Each call opens the place anew: there is no state between calls.
"""
