"""A partition's state of its producers: sequences, epochs, open and aborted transactions, snapshots."""
