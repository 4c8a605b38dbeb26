//! Replies: their blocks, their usage, and how they are put together.

mod block;
mod usage;
mod details;
mod assembler;

pub(crate) use self::assembler::{PAUSE_TURN, ReplyAssembler};
pub(crate) use self::block::{Block, BlockKind};
pub use self::details::ReplyDetails;
