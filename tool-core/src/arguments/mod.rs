//! The arguments of a call: reading them from the model's text, repairing and explaining them.

pub(crate) mod expectation;
mod in_order;
pub(crate) mod inspection;
#[allow(missing_docs, reason = "for generated code only")]
mod limits;
mod members;
mod names;
mod omitted;
mod parameter;
pub(crate) mod repair;
mod report;
pub(crate) mod schema_limits;
pub(crate) mod schemas;

pub(crate) use self::in_order::InOrder;
#[cfg(feature = "dynamic")]
pub(crate) use self::inspection::Verdict;
pub(crate) use self::inspection::{Inspection, Judge};
pub(crate) use self::limits::Limit;
pub(crate) use self::members::Members;
pub(crate) use self::names::{LONGEST_NAME, list, nearest};
pub(crate) use self::omitted::without_omitted;
pub(crate) use self::parameter::{Parameter, ToolParameter};
pub use self::repair::Repair;
pub(crate) use self::report::{LONGEST_ACCOUNT, note};
pub(crate) use self::schema_limits::Broken;

/// The items of this module that generated code names.
pub(crate) mod private {
    pub use super::limits::{
        Bound, Bounds, Length, Measured, Pattern, PatternCell, Range, Ranged, Textual, compiled,
    };
    pub use super::parameter::{
        FromText, NotShown, Omittable, OptionalProbe, Parameter, RequiredByDefault, Shown, ToolParameter,
        example, left_out,
    };
}
