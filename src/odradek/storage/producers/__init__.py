"""What a partition knows of its producers: sequences, epochs, open and aborted transactions, snapshots."""
