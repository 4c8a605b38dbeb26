//! Conversation memory: windows, repair of histories, exclusive access, and the SQLite store; stored runs.

mod histories;
mod opening;
mod runs;
mod sqlite;
