"""A folder or a broker, behind one interface: its topics and offsets, reading, writing, transactions."""
