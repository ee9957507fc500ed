"""The commands. Each module has those of one noun, in `COMMANDS`.

These modules import neither asyncio nor the client when they are imported, so that help and wrong
use are fast.
"""
