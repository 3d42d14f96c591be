"""Statistics of logs: sizes, rates, codecs, keys, gaps."""
