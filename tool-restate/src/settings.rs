//! The settings of a worker, which its runs and calls share.

use std::collections::BTreeMap;
use std::time::Duration;

use tool_core::memory::Window;

use crate::context::ContextTypes;
use crate::events::Publisher;
use crate::limit::MAX_BYTES;
use crate::options::RETENTION;
use crate::tools::ChangedTools;

pub(crate) struct Settings {
    pub(crate) types: ContextTypes,
    /// The workers that execute the calls of certain tools, by the tools' names.
    pub(crate) routes: BTreeMap<String, String>,
    pub(crate) window: Option<Window>,
    pub(crate) has_local_calls: bool,
    pub(crate) changed_tools: ChangedTools,
    pub(crate) model_attempts: Option<u32>,
    pub(crate) model_patience: Duration,
    pub(crate) longest_call: Duration,
    /// The time for which a run and its events are stored after its end.
    pub(crate) retention: Duration,
    /// The largest value that one step stores, in bytes of JSON.
    pub(crate) max_bytes: usize,
    pub(crate) publisher: Option<Publisher>,
    pub(crate) version: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            types: ContextTypes::default(),
            routes: BTreeMap::new(),
            window: None,
            has_local_calls: false,
            changed_tools: ChangedTools::default(),
            model_attempts: None,
            model_patience: Duration::from_secs(6 * 60 * 60),
            longest_call: Duration::from_secs(24 * 60 * 60),
            retention: RETENTION,
            max_bytes: MAX_BYTES,
            publisher: None,
            version: String::new(),
        }
    }
}
