"""What is read of a place, whatever place it is: Arrow, statistics, searches, the ends of partitions."""
