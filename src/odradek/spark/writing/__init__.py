"""Writing from Spark: `df.write.format("odradek")` and `df.writeStream.format("odradek")`."""
