//! From the model to tokens. Nothing here can fail: what could was checked before.

pub(crate) mod list;
pub(crate) mod tool;
