//! Conversation memory: windows, repair of histories, exclusive access, and the SQLite store.

mod histories;
mod opening;
mod sqlite;
