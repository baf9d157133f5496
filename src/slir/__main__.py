"""`python -m slir` is `slir`."""

from slir.cli import main

if __name__ == "__main__":
    main()
