//! Our attributes: one struct per attribute, each value with its span.

mod param;
mod tool;
mod toolbox;
mod words;

pub(crate) use self::param::ParamAttribute;
pub(crate) use self::tool::{ReturnDirect, ToolAttribute};
pub(crate) use self::toolbox::ToolboxAttribute;
