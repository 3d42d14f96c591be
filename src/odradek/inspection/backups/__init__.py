"""Copies a log directory consistently while another program writes it, and puts such a copy back."""
