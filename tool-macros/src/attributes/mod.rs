//! The attributes as written: one struct per attribute, with a span for each value.

mod options;
mod param;
mod tool;
mod toolbox;

pub(crate) use self::param::ParamAttribute;
pub(crate) use self::tool::{ReturnDirect, ToolAttribute};
pub(crate) use self::toolbox::ToolboxAttribute;
