//! The arguments of a call, from the model's text to typed values: reading, repair, limits and explanations of mistakes.
//!
//! `decode` reads values with their types, which are a `target` and decide what is accepted; `matching` compares values with schemas.
//! After a failure, `lenient` corrects the text as a whole, `repair` the value at the type's error or else all of them, and `explain`
//! reports all mistakes: those that its walk finds by the schema, and `explain::refusals` by the type. `describe`
//! words what a schema expects, and `explain::wording` all other sentences.
//! `tokens` finds duplicate members, and `watched` those that a type ignores.

mod budget;
mod contract;
mod decode;
mod describe;
mod duplicates;
mod explain;
mod lenient;
mod matching;
mod member_cursor;
mod members;
mod names;
mod parameter;
#[allow(missing_docs, reason = "for generated code only")]
mod parameter_limits;
mod repair;
mod report;
pub(crate) mod schemas;
mod target;
mod tokens;
mod watched;

pub(crate) use self::contract::Contract;
pub(crate) use self::decode::{Decoder, Mode, decode_object};
pub(crate) use self::describe::describe;
pub(crate) use self::duplicates::{accepts_duplicates, report_duplicates};
#[cfg(feature = "dynamic")]
pub(crate) use self::explain::{IsValid, SchemaValidator};
pub(crate) use self::explain::{is_within_limits, missing_value, not_an_object, unknown_name};
pub(crate) use self::lenient::repair_text;
pub(crate) use self::member_cursor::MemberCursor;
pub(crate) use self::members::Members;
pub(crate) use self::names::{MAX_LISTED, MAX_NAME_CHARS, list_names, nearest_name};
pub(crate) use self::parameter::{Parameter, ToolParameter};
pub(crate) use self::parameter_limits::Limit;
pub use self::repair::Repair;
pub(crate) use self::repair::{without_omitted_arguments, write_object};
pub(crate) use self::report::{ArgumentErrors, MAX_REPORT_BYTES, Report};
pub(crate) use self::target::{Refused, Target, Typed};
pub(crate) use self::tokens::{duplicate_members, without_whitespace};
#[cfg(feature = "prompted")]
pub(crate) use self::{explain::duplicate_member, lenient::to_json};

/// The items of this module that generated code refers to.
pub(crate) mod private {
    pub use super::parameter::{
        FromText, NotShown, Omittable, OptionalProbe, Parameter, RequiredByDefault, Shown, ToolParameter,
        example, not_required,
    };
    pub use super::parameter_limits::{Bounds, Limit, Measured, Ranged, Textual};
    pub use crate::schema::Bound;
}
