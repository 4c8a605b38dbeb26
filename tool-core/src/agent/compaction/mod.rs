//! Compaction: what the model no longer reads of a long run, and when.

mod options;
mod plan;
mod outputs;
mod reader;
mod order;
mod view;

pub use self::options::Compaction;
pub(super) use self::order::{COMPACT, compact_tool};
pub(super) use self::outputs::{LongOutputs, READ_OUTPUT, own_limit};
pub(super) use self::plan::{Measure, Plan, Rates, ToolFacts};
pub(super) use self::reader::{Reader, check_reader_name};
pub(super) use self::view::CompactedView;
