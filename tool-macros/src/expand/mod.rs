//! Generates code from checked items. Nothing here can fail.

mod tokens;
mod details;
mod declaration;
mod call;
pub(crate) mod list;
pub(crate) mod pattern;
pub(crate) mod tool;
pub(crate) mod toolbox;
pub(crate) mod assistant;
