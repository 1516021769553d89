"""For tests and simulations only: real behaviour without real servers."""
