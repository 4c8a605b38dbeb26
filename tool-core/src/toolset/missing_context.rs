//! Values that tools need from the context but that are missing.

use std::any::type_name;
use std::fmt;

use crate::tool::ToolContext;
use crate::toolset::ToolSet;

impl ToolSet {
    /// Returns the values that the tools need from the context and that this context does not have, or `None` if it has
    /// all of them. Only [declared injections](crate::Tool::injections) are checked.
    ///
    /// [`Agent::ask`](crate::Agent::ask) performs this check before it sends a request to the model.
    ///
    /// ```
    /// use tool_core::model::ToolDefinition;
    /// use tool_core::engine::Injection;
    /// use tool_core::tool::ToolFuture;
    /// use tool_core::{Tool, ToolContext, ToolOutput, ToolSet};
    ///
    /// struct UserId(u32);
    ///
    /// struct WhoAmI(ToolDefinition);
    ///
    /// impl Tool for WhoAmI {
    ///     fn definition(&self) -> &ToolDefinition {
    ///         &self.0
    ///     }
    ///
    ///     fn call<'a>(&'a self, _arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
    ///         let user = context.get().map_or(0, |UserId(user)| *user);
    ///         ToolFuture::ready(Ok(ToolOutput::text(user.to_string())))
    ///     }
    ///
    ///     fn injections(&self) -> Option<&[Injection]> {
    ///         Some(&const { [Injection::new::<UserId>()] })
    ///     }
    /// }
    ///
    /// let tools = ToolSet::default().with(WhoAmI(ToolDefinition::new("who_am_i").with_description("Returns the user's id")))?;
    /// let missing = tools.missing_from(&ToolContext::new()).unwrap();
    /// assert!(missing.to_string().contains("`who_am_i` needs `"));
    /// assert!(tools.missing_from(&ToolContext::new().with(UserId(7))).is_none());
    /// # Ok::<_, tool_core::toolset::ToolSetError>(())
    /// ```
    #[must_use]
    pub fn missing_from(&self, context: &ToolContext) -> Option<MissingContext> {
        let mut missing = Vec::new();
        for tool in self.iter() {
            let mut types = Vec::new();
            for injection in tool.injections().unwrap_or_default() {
                if injection.is_missing_in(context) && !types.contains(&injection.type_name()) {
                    types.push(injection.type_name());
                }
            }
            if !types.is_empty() {
                missing.push((tool.definition().name().to_owned(), types));
            }
        }
        (!missing.is_empty()).then(|| MissingContext { missing, provided: context.type_names() })
    }
}

/// The error of a context that lacks values that tools need. It lists each of these tools with the missing types, and the types
/// that the context has.
#[derive(Clone, PartialEq, Eq)]
pub struct MissingContext {
    missing: Vec<(String, Vec<&'static str>)>,
    provided: Vec<&'static str>,
}

impl MissingContext {
    /// Returns an iterator over the tools that lack a value, in the order of their set, with the names of the missing
    /// types.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[&'static str])> {
        self.missing.iter().map(|(tool, types)| (&**tool, &**types))
    }

    /// Returns the names of the types that the application provided, in alphabetical order.
    #[must_use]
    pub fn provided(&self) -> &[&'static str] {
        &self.provided
    }
}

impl std::error::Error for MissingContext {}

impl fmt::Display for MissingContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values are missing from the context: ")?;
        for (position, (tool, types)) in self.iter().enumerate() {
            let comma = if position > 0 { ", " } else { "" };
            write!(f, "{comma}`{tool}` needs ")?;
            write_names(f, types)?;
        }
        f.write_str("; pass each with `context(value)` on the agent or on the question")?;
        if !self.provided.is_empty() {
            f.write_str("; the context has ")?;
            write_names(f, &self.provided)?;
        }
        if self.provided.contains(&type_name::<ToolContext>()) {
            f.write_str("; a `ToolContext` is not unpacked: pass its values with `context(value)`")?;
        }
        if self.missing.iter().flat_map(|(_, types)| types).any(|missing| self.provided.contains(missing)) {
            f.write_str("; an agent as a tool takes from it only what `AgentTool::pass_context` names")?;
        }
        Ok(())
    }
}

fn write_names(f: &mut fmt::Formatter<'_>, names: &[&str]) -> fmt::Result {
    for (position, name) in names.iter().enumerate() {
        let and = match position {
            0 => "",
            _ if position + 1 == names.len() => " and ",
            _ => ", ",
        };
        write!(f, "{and}`{name}`")?;
    }
    Ok(())
}

/// Same as `Display`, so that a `main` that returns the error prints it readably.
impl fmt::Debug for MissingContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
