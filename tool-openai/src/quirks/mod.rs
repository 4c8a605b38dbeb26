//! Deviations from OpenAI's API, each with the server that it was seen on.

mod arguments;
mod call_id;
mod content;
mod finish_reason;
mod surrogates;

pub(crate) use self::arguments::Arguments;
pub(crate) use self::call_id::{generate_call_id, nine_alphanumeric};
pub(crate) use self::content::WireContent;
pub(crate) use self::finish_reason::{is_provider_failure, parse_finish_reason};
pub(crate) use self::surrogates::{repair_surrogates, try_repair_surrogates};
