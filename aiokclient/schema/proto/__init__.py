"""The files of Protobuf that a registry has, and classes of the messages in them."""
