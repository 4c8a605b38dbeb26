//! The gate that exclusive calls pass alone.

use std::sync::Arc;

use tokio::sync::RwLock;

/// Lets an exclusive call run alone among the calls of all runs of a question. A call that asks an agent does not pass the gate, but
/// the calls of the agent do, unless it is exclusive itself: then they have a gate of their own.
pub(super) type Gate = Arc<RwLock<()>>;
