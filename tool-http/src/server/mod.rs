//! The parts that servers share.
