//! The arguments of a call, from the model's text to typed values: reading, repair, limits and explanations of mistakes.
//!
//! The files in the order in which they work. Each imports only from files before it in the list below:
//!
//! 1. `decode` splits the object of all arguments into members. If the text is no object, `lenient` corrects it as a whole. `tokens`
//!    finds duplicate members.
//! 2. `target` reads each value with its type, which decides what is accepted. `watched` notices the members that the type ignores,
//!    and the part that it refuses.
//! 3. `repair` corrects that part, or else the whole value, and it is read again.
//! 4. `explain` reports which limits of its schema a value exceeds, or everything that is wrong with a value that is still refused.
//!    `matching` compares values with schemas, `describe` words what a schema expects, and `wording` all other sentences.

mod budget;
pub(crate) mod names;
mod members;
mod report;
mod tokens;
mod lenient;
mod matching;
mod describe;
mod wording;
mod parameter;
#[allow(missing_docs, reason = "for generated code only")]
mod parameter_limits;
pub(crate) mod schemas;
mod watched;
mod validators;
mod target;
pub(crate) mod repair;
mod explain;
mod contract;
mod decode;

pub(crate) use self::contract::Contract;
pub(crate) use self::decode::{Decoder, Mode, decode, object_text};
#[cfg(feature = "prompted")]
pub(crate) use self::lenient::to_json;
pub(crate) use self::members::{Members, write_object};
pub(crate) use self::names::{MAX_NAME_CHARS, list_names, nearest_name};
pub(crate) use self::parameter::{Parameter, ToolParameter};
pub(crate) use self::parameter_limits::Limit;
pub(crate) use self::repair::Repair;
pub(crate) use self::repair::without_omitted_arguments;
pub(crate) use self::report::ArgumentErrors;
#[cfg(feature = "dynamic")]
pub(crate) use self::target::{IgnoredMember, Refused};
pub(crate) use self::target::{Target, Typed};
pub(crate) use self::tokens::without_whitespace;
#[cfg(feature = "dynamic")]
pub(crate) use self::validators::{IsValid, SchemaValidator};
#[cfg(feature = "prompted")]
pub(crate) use self::wording::duplicate_member;

/// The items of this module that generated code refers to.
pub(crate) mod private {
    pub use super::parameter::{
        FromText, NotShown, Omittable, Parameter, ParameterKind, ParameterProbe, RequiredByDefault, Shown,
        ToolParameter, example, not_required,
    };
    pub use super::parameter_limits::{Bounds, Limit, Measured, Ranged, Textual};
    pub use crate::schema::Bound;
}
