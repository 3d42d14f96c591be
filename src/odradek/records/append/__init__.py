"""What happens to batches before they are appended: records become batches, and batches are checked and numbered."""
