//! What is kept of conversations: windows and repair over any history, one ask at a time, and stores on disk.

mod histories;
mod opening;
mod sqlite;
