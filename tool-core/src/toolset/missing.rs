//! What the tools of a set take from the context, and do not find there.

use std::fmt;

use crate::tool::ToolContext;
use crate::toolset::ToolSet;

impl ToolSet {
    /// What the tools take from their context and this one does not have; `None` if they lack nothing, as
    /// far as they [say](crate::Tool::injections) what they take.
    ///
    /// [`Agent::ask`](crate::Agent::ask) looks by itself before it asks the model.
    ///
    /// ```
    /// use tool_core::model::ToolDefinition;
    /// use tool_core::tool::{Injection, ToolFuture};
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
    /// let tools = ToolSet::default().with(WhoAmI(ToolDefinition::new("who_am_i").with_description("Tells the user's id")))?;
    /// let missing = tools.missing_from(&ToolContext::new()).unwrap();
    /// assert!(missing.to_string().contains("`who_am_i` takes `"));
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
        (!missing.is_empty()).then_some(MissingContext(missing))
    }
}

/// What tools take from their context that it does not have: every tool, with the types that it lacks.
#[derive(Clone, PartialEq, Eq)]
pub struct MissingContext(Vec<(String, Vec<&'static str>)>);

impl MissingContext {
    /// The tools that lack something, in the order of their set, each with the names of the types.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[&'static str])> {
        self.0.iter().map(|(tool, types)| (&**tool, &**types))
    }
}

impl std::error::Error for MissingContext {}

impl fmt::Display for MissingContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tools lack what they take from the context: ")?;
        for (position, (tool, types)) in self.iter().enumerate() {
            let comma = if position > 0 { ", " } else { "" };
            write!(f, "{comma}`{tool}` takes ")?;
            for (position, name) in types.iter().enumerate() {
                let and = match position {
                    0 => "",
                    _ if position + 1 == types.len() => " and ",
                    _ => ", ",
                };
                write!(f, "{and}`{name}`")?;
            }
        }
        f.write_str("; hand it in with `context(…)` on the agent or on the question")
    }
}

/// The text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for MissingContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
