//! The address book and the warm-pool planner, without clocks or sockets.
