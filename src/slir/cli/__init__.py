"""The command `slir`: parse, call the library, show. Nothing here restores anything by itself."""

from slir.cli.app import app, main

__all__ = ["app", "main"]
