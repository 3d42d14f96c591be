"""Sources: a file, a partition's folder, a log directory or a broker, for programs that read all of them alike."""
