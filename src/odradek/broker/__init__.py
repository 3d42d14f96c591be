"""A broker of one node over a log directory: Kafka's clients connect to it as to Apache Kafka.

server      listeners, connections, frames        one thread, one event loop
api         one module for each API: what a request asks for, and the answer
groups      consumer groups, and the offsets that they commit
transactions   transactional producers
storage     the logs; whatever may take long runs in other threads
"""
