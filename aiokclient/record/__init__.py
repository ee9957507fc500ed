"""Record batches in all of Kafka's formats. Sans-IO: bytes in, bytes out."""
