//! Replies: their blocks, their usage, and how they are put together.

mod assembler;
mod block;
mod details;
mod usage;

pub(crate) use self::assembler::{EventError, PAUSE_TURN, ReplyAssembler};
pub(crate) use self::block::{Block, BlockKind, is_object};
pub use self::details::ReplyDetails;
