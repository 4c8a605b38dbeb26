//! Functions and closures that can be called with arguments of a type of their own.

use std::future::Future;

use crate::tool::future::later;
use crate::tool::{IntoToolOutput, ToolContext, ToolFuture};

/// A function or closure that a tool can be made of.
///
/// It takes nothing, or the arguments, or the arguments and a [`ToolContext`], and it is `async` or not.
/// What it gives is [`IntoToolOutput`]. As calls may run side by side and on any thread, it is `Fn + Send + Sync +
/// 'static`, and so is its future `Send + 'static`: what it works on, it owns, or shares by an `Arc`.
///
/// A closure written `async |..|` is one only if it captures nothing, as its future borrows what it captures: write
/// `move |args: Args| { let shared = Arc::clone(&shared); async move { … } }`.
///
/// The trait is there for all such functions; nobody has to implement it. `Marker` only tells them apart.
///
/// ```
/// use tool_core::{FunctionTool, ToolContext, schemars::JsonSchema};
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct City {
///     name: String,
/// }
///
/// struct User(String);
///
/// async fn weather(city: City, context: ToolContext) -> Result<String, std::io::Error> {
///     let user = context.get::<User>().map_or("nobody", |user| &user.0);
///     Ok(format!("rain in {}, {user}", city.name))
/// }
///
/// let tools = [
///     FunctionTool::new("weather", "Tells the weather", weather),
///     FunctionTool::new("letters", "Counts letters", |city: City| city.name.len()),
///     FunctionTool::new("noon", "Tells when noon is", || "12:00"),
/// ];
/// # let _ = tools;
/// ```
#[diagnostic::on_unimplemented(
    message = "this function or closure cannot be a tool",
    label = "not a function that a tool can call",
    note = "write `|args: Args| …` or `|args: Args, context: ToolContext| …` with explicit types; for async code, return `async move {{ … }}`",
    note = "the return type must implement `IntoToolOutput`, such as `String`, `Json<T>` or `Result<T, E>`",
    note = "the function must be `Fn + Send + Sync + 'static` and its future `Send + 'static`; write `move`, and share state in an `Arc`"
)]
pub trait ToolHandler<Marker>: Send + Sync + 'static {
    /// What it takes: `()` for nothing.
    type Arguments: 'static;

    /// Calls it.
    fn call(&self, arguments: Self::Arguments, context: &ToolContext) -> ToolFuture<'static>;
}

/// Marks functions that are done when they return.
#[derive(Debug)]
pub enum Immediate {}

/// Marks functions whose future is awaited.
#[derive(Debug)]
pub enum Awaited {}

/// `$function(..) -> $result`, called with some of the arguments and the context.
macro_rules! handlers {
    ($([$($generic:ident)?] ($($type:ty),*) $arguments:ty: |$given:pat_param, $context:pat_param| ($($value:expr),*);)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<Function, Output $(, $generic)?> ToolHandler<(Immediate, fn($($type),*))> for Function
        where
            Function: Fn($($type),*) -> Output + Send + Sync + 'static,
            Output: IntoToolOutput,
            $($generic: 'static,)?
        {
            type Arguments = $arguments;

            fn call(&self, $given: $arguments, $context: &ToolContext) -> ToolFuture<'static> {
                ToolFuture::ready(self($($value),*).into_tool_output())
            }
        }

        #[diagnostic::do_not_recommend]
        impl<Function, Pending $(, $generic)?> ToolHandler<(Awaited, fn($($type),*))> for Function
        where
            Function: Fn($($type),*) -> Pending + Send + Sync + 'static,
            Pending: Future<Output: IntoToolOutput> + Send + 'static,
            $($generic: 'static,)?
        {
            type Arguments = $arguments;

            fn call(&self, $given: $arguments, $context: &ToolContext) -> ToolFuture<'static> {
                later(self($($value),*), IntoToolOutput::into_tool_output).into()
            }
        }
    )*};
}

handlers! {
    [] () (): |(), _| ();
    [Arguments] (Arguments) Arguments: |arguments, _| (arguments);
    [Arguments] (Arguments, ToolContext) Arguments: |arguments, context| (arguments, context.clone());
}
