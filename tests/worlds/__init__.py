"""What tests stand on: servers in memory, clocks, builders of objects."""
