//! Sets of tools: they define what a model can call and execute its calls.
//!
//! A file imports only from those before it in the list below.

mod error;
mod output_limit;
mod registry;
mod set;
mod select;
mod missing_context;
mod call;
mod execute_request;
mod layered;
mod redefined;
mod recorded;
mod rename;
mod strict;
mod extra_parameters;
mod provider;
mod resolver;
mod toolbox;
mod search;
mod report;

pub use self::error::{ToolSetError, ToolSetErrorKind};
pub use self::extra_parameters::ExtraParameters;
pub use self::missing_context::MissingContext;
pub use self::provider::{
    ClosureProvider, ProvidedTools, ToolProvider, ToolProviderFuture, ToolProviderRequest, provide,
};
pub(crate) use self::recorded::withdrawn;
pub(crate) use self::redefined::redefined;
pub use self::registry::registered;
pub use self::report::{Finding, FindingKind, ToolCost, ToolReport};
pub use self::resolver::NamedTools;
pub use self::resolver::ToolResolver;
pub(crate) use self::search::{name_groups, search};
pub(crate) use self::set::is_valid_name;
pub use self::set::{IntoToolSet, ToolSet};
pub use self::toolbox::Toolbox;

/// The items of this module that generated code names.
pub(crate) mod private {
    pub use super::registry::Registration;
    pub use super::toolbox::{Method, toolbox_tool_set};
}
