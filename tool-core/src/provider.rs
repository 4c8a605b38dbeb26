#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/provider.md")]

pub use crate::content::depth::{MAX_JSON_DEPTH, MAX_SCHEMA_DEPTH};
pub use crate::content::json::{JsonText, compact_json};
pub use crate::content::printable::printable;
pub use crate::model::cache::RequestCache;
pub use crate::model::chat_model::ModelFuture;
pub use crate::model::definition::{ToolDefinitions, ToolKind};
pub use crate::model::logprob::TokenLogprob;
pub use crate::model::message::Citation;
pub use crate::model::meter::EarlierAttempt;
pub use crate::model::model_info::ModelInfo;
pub use crate::model::provider_data::ProviderData;
pub use crate::model::repair_history::repair_history;
pub use crate::model::response_format::ResponseFormat;
pub use crate::model::strict_error::StrictError;
