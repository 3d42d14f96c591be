"""Records on their way: exported into files, imported from them, written into a folder or a broker."""
