//! A world in which everything goes wrong, on a virtual clock.
