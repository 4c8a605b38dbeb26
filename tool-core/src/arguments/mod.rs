//! The arguments of a call: parsing, repair, limits and explanations of mistakes.

mod duplicates;
pub(crate) mod explain;
pub(crate) mod inspection;
#[allow(missing_docs, reason = "for generated code only")]
mod limits;
mod member_cursor;
mod members;
mod mistakes;
mod names;
mod omitted;
mod parameter;
pub(crate) mod repair;
pub(crate) mod schema_limits;
pub(crate) mod schemas;
pub(crate) mod tokens;

pub(crate) use self::duplicates::accepts_duplicates;
#[cfg(feature = "dynamic")]
pub(crate) use self::inspection::Verdict;
pub(crate) use self::inspection::{Inspection, Judge};
pub(crate) use self::limits::Limit;
pub(crate) use self::member_cursor::MemberCursor;
pub(crate) use self::members::Members;
pub(crate) use self::mistakes::{MAX_REPORT_BYTES, add_mistake};
pub(crate) use self::names::{MAX_NAME_CHARS, list, nearest};
pub(crate) use self::omitted::without_omitted;
pub(crate) use self::parameter::{Parameter, ToolParameter};
pub use self::repair::Repair;
pub(crate) use self::schema_limits::LimitViolation;
pub(crate) use self::tokens::duplicate_members;

/// The items of this module that generated code refers to.
pub(crate) mod private {
    pub use super::limits::{
        Bound, Bounds, Length, Measured, Pattern, PatternCell, Range, Ranged, Textual, compiled,
    };
    pub use super::parameter::{
        FromText, NotShown, Omittable, OptionalProbe, Parameter, RequiredByDefault, Shown, ToolParameter,
        example, not_required,
    };
}
