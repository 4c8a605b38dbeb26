//! Deviations from OpenAI's API, each with the server that it was seen on.

mod arguments;
mod call_id;
mod content;
mod finish_reason;
mod surrogates;
mod tool_name;

pub(crate) use self::arguments::{deserialize_arguments, normalize_arguments};
pub(crate) use self::call_id::{generate_call_id, nine_alphanumeric};
pub(crate) use self::content::WireContent;
pub(crate) use self::finish_reason::{is_provider_failure, parse_finish_reason};
pub(crate) use self::surrogates::{repair_surrogates, try_repair_surrogates};
pub(crate) use self::tool_name::{MAX_NAME_CHARS, is_valid_tool_name, normalize_tool_name};
