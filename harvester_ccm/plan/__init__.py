"""Pure decisions. A plan takes what is known and returns what to do: no I/O, no clock, no logging, no randomness."""
