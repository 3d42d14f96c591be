"""A broker of one node over a log directory: Kafka's clients connect to it as to Apache Kafka.

    acceptor, channels, connection   sockets, and requests as frames          one thread, one event loop
    server         which API answers a request
    api            a module for each API
    broker         what the APIs work on: partitions, topics, settings, groups, transactions
    groups         consumer groups, and the offsets that they commit
    transactions   transactional producers
    configs        settings, as clients describe and alter them
    running        the broker in a program of your own; service: as `odradek serve` runs it

The logs are those of `odradek.storage`. What may take long runs in other threads (`workers`).
"""
