"""What slir ships: the pictures it learns from by default, and one that it has never seen, for the demonstration."""
