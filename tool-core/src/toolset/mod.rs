//! Sets of tools: they define what a model can call and execute its calls.
//!
//! A file imports only from those before it in the list below.

mod error;
mod output_limit;
mod registry;
pub(crate) mod set;
mod select;
pub(crate) mod missing_context;
mod call;
pub(crate) mod tool_set_ext;
mod layered;
mod redefined;
mod recorded;
mod rename;
mod strict;
mod extra_parameters;
pub(crate) mod provider;
mod resolver;
mod toolbox;
mod search;
pub(crate) mod report;

pub use self::error::{ToolSetError, ToolSetErrorKind};
pub use self::extra_parameters::ExtraParameters;
pub(crate) use self::missing_context::MissingContext;
pub(crate) use self::provider::ProvidedTools;
pub use self::provider::{ToolProvider, ToolProviderFuture, ToolProviderRequest, provide};
pub(crate) use self::recorded::withdrawn;
pub(crate) use self::redefined::redefined;
pub use self::registry::registered;
pub(crate) use self::report::ToolReport;
pub use self::resolver::ToolResolver;
pub use self::resolver::ToolsByName;
pub(crate) use self::search::{name_groups, search};
pub(crate) use self::set::IntoToolSet;
pub use self::set::ToolSet;
pub(crate) use self::set::is_valid_name;
pub(crate) use self::tool_set_ext::ToolSetExt;
pub use self::toolbox::Toolbox;

/// The items of this module that generated code names.
pub(crate) mod private {
    pub use super::registry::Registration;
    pub use super::toolbox::{Method, toolbox_tool_set};
}
