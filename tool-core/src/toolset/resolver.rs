//! Resolvers of names that a configuration or a database contains.

use std::error::Error;
use std::future::ready;

use crate::toolset::{
    ProvidedTools, ToolProvider, ToolProviderFuture, ToolProviderRequest, ToolSet, ToolSetError,
};

/// A resolver of the names of tools that a configuration, a database or a user chose. See [`ToolSet::resolved`].
///
/// A [`ToolSet`] resolves the names of its tools, which can be the methods of toolboxes. Functions from a `&str` to
/// [`ProvidedTools`] implement this trait: they return a `ToolSet`, an `Option` of one, or a `Result` of either.
///
/// ```
/// use tool_core::toolset::{ToolProviderFuture, ToolResolver};
/// use tool_core::{FunctionTool, ToolSet};
///
/// /// The greetings in a database.
/// struct Greetings;
///
/// impl ToolResolver for Greetings {
///     fn resolve<'a>(&'a self, name: &'a str) -> ToolProviderFuture<'a> {
///         Box::pin(async move {
///             // … look the name up …
///             match name.strip_prefix("greet_") {
///                 Some(person) => {
///                     let greeting = format!("Hello, {person}!");
///                     let tool = FunctionTool::new(name, move || greeting.clone()).description("Greets");
///                     Ok(ToolSet::default().with(tool)?)
///                 }
///                 None => Ok(ToolSet::default()),
///             }
///         })
///     }
/// }
///
/// # futures_util::FutureExt::now_or_never(async {
/// let tools = ToolSet::resolved(["greet_ada", "greet_bob"], &Greetings).await?;
/// assert_eq!(tools.len(), 2);
/// # Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
/// # }).unwrap().unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not resolve the names of tools",
    label = "not a `ToolResolver`",
    note = "pass a `ToolSet`, or a closure that takes a `&str` and returns a `ToolSet`, an `Option` of one, or a `Result` of either"
)]
pub trait ToolResolver: Send + Sync {
    /// Returns a set that contains the tool with this name, or a set without it if the resolver does not know the name. Other
    /// tools of the set are ignored.
    ///
    /// # Errors
    ///
    /// The future can return any error if the tool cannot be looked up.
    fn resolve<'a>(&'a self, name: &'a str) -> ToolProviderFuture<'a>;
}

#[diagnostic::do_not_recommend]
impl<F, R> ToolResolver for F
where
    F: Fn(&str) -> R + Send + Sync,
    R: ProvidedTools,
{
    fn resolve<'a>(&'a self, name: &'a str) -> ToolProviderFuture<'a> {
        Box::pin(ready(self(name).into_provided()))
    }
}

impl ToolResolver for ToolSet {
    fn resolve<'a>(&'a self, _name: &'a str) -> ToolProviderFuture<'a> {
        Box::pin(ready(Ok(self.clone())))
    }
}

/// The tools with these names, which a resolver looks up for each question. A name that it does not know ends the run
/// with [`RunErrorKind::Tools`](crate::RunErrorKind::Tools); [`ToolSet::resolved`] finds that at once.
///
/// ```
/// use tool_core::testing::ScriptedModel;
/// use tool_core::toolset::ToolsByName;
/// use tool_core::{Agent, tool, tools};
///
/// #[tool("Sums two numbers")]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let configured = ["sum".to_owned()]; // from a file
/// let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
/// let agent = Agent::builder(model).tool_provider(ToolsByName::new(configured, tools![sum])).build()?;
/// assert_eq!(agent.ask("What is 2 + 40?").await?.new_messages()[2].text(), "42.0");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ToolsByName<R> {
    names: Vec<String>,
    resolver: R,
}

impl<R: ToolResolver> ToolsByName<R> {
    /// Creates the provider of the tools with these names.
    pub fn new(names: impl IntoIterator<Item = impl Into<String>>, resolver: R) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), resolver }
    }
}

impl<R: ToolResolver> ToolProvider for ToolsByName<R> {
    fn tools<'a>(&'a self, _request: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
        Box::pin(ToolSet::resolved(self.names.iter().map(String::as_str), &self.resolver))
    }

    fn name(&self) -> &'static str {
        "named_tools"
    }
}

impl ToolSet {
    /// Selects tools by name with a resolver, for example those that a configuration lists: `#[tool]` functions, methods of
    /// toolboxes, and any others. Pass the set to an agent or a [question](crate::agent::Ask::tools);
    /// [`ToolsByName`] resolves names when they are needed.
    ///
    /// ```
    /// use tool_core::{ToolSet, tool, toolbox, tools};
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// struct Desk;
    ///
    /// #[toolbox]
    /// impl Desk {
    ///     #[tool("Books a room")]
    ///     fn book(&self, nights: u8) {}
    /// }
    ///
    /// # futures_util::FutureExt::now_or_never(async {
    /// let known = tools![sum].union(Desk)?;
    /// let tools = ToolSet::resolved(["book"], &known).await?;
    /// assert_eq!(tools.definitions()[0].name(), "book");
    /// # Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with a [`ToolSetError`] if the resolver does not know a name or if a name is given twice, and with the resolver's
    /// error if it cannot look a tool up.
    pub async fn resolved<'a>(
        names: impl IntoIterator<Item = &'a str>,
        resolver: &(impl ToolResolver + ?Sized),
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut tools = Self::default();
        for name in names {
            let found = resolver.resolve(name).await?;
            if found.get(name).is_none() {
                let known = found.definitions().names();
                return Err(ToolSetError::unknown_tool(name, "that the resolver knows", known).into());
            }
            tools = tools.union(found.filter(|definition| definition.name() == name))?;
        }
        Ok(tools)
    }
}
