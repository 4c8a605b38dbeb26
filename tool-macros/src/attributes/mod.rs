//! The attributes as written: one struct per attribute, with a span for each value.

mod options;
mod source;
mod ask;
mod assistant;
mod param;
mod tool;
mod toolbox;

pub(crate) use self::ask::AskAttribute;
pub(crate) use self::assistant::AssistantAttribute;
pub(crate) use self::param::ParamAttribute;
pub(crate) use self::tool::ToolAttribute;
pub(crate) use self::toolbox::ToolboxAttribute;
