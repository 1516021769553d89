"""How fast it is, beside others, on this machine: the same rows, interleaved rounds, medians."""
