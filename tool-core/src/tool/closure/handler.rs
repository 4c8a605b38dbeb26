//! Functions and closures that can be tools.

use std::future::Future;

use crate::tool::future::later;
use crate::tool::{IntoToolOutput, ToolContext, ToolFuture};

/// A function or closure that can be a tool.
///
/// It takes no parameters, the arguments, or the arguments and a [`ToolContext`], and it can be `async`. Its future must not
/// borrow the context, so an `async` function takes it by value, and others also as `&ToolContext`. Its output implements
/// [`IntoToolOutput`]. Calls can run concurrently and on any thread, so the function is `Fn + Send + Sync + 'static` and its
/// future is `Send + 'static`: it owns its data or shares it through an `Arc`.
///
/// A closure written `async |..|` qualifies only if it captures nothing, because its future borrows its captures. Write
/// `move |args: Args| { let shared = Arc::clone(&shared); async move { … } }` instead.
///
/// The trait is implemented for all such functions and not meant to be implemented by hand. `Marker` distinguishes the
/// implementations.
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
///     FunctionTool::new("weather", weather).description("Returns the weather"),
///     FunctionTool::new("letters", |city: City| city.name.len()).description("Counts letters"),
///     FunctionTool::new("is_home", |_: City, context: &ToolContext| context.get::<User>().is_some()),
///     FunctionTool::new("noon", || "12:00").description("Returns the time of noon"),
/// ];
/// # let _ = tools;
/// ```
#[diagnostic::on_unimplemented(
    message = "this function or closure cannot be a tool",
    label = "not a function that a tool can call",
    note = "all arguments are one struct: write `|args: Args| …` or `|args: Args, context: ToolContext| …` with explicit types; for async code, return `async move {{ … }}`",
    note = "the return type must implement `IntoToolOutput`, such as `String`, `Json<T>` or `Result<T, E>`",
    note = "the function must be `Fn + Send + Sync + 'static` and its future `Send + 'static`; write `move`, share state in an `Arc`, and change it through a `Mutex` or an atomic"
)]
pub trait ToolHandler<Marker>: Send + Sync + 'static {
    /// The type of the arguments, or `()` if there are none.
    type Arguments: 'static;

    /// Calls the function.
    fn call(&self, arguments: Self::Arguments, context: &ToolContext) -> ToolFuture<'static>;
}

/// Marks functions that return their output directly.
#[derive(Debug)]
pub enum Immediate {}

/// Marks functions that return a future.
#[derive(Debug)]
pub enum Awaited {}

/// Implements [`ToolHandler`] for functions with the given parameters, called with the given values.
macro_rules! handlers {
    ($([$($generic:ident)?] ($($type:ty),*) $arguments:ty: |$value:pat_param, $context:pat_param| ($($passed:expr),*);)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<Function, Output $(, $generic)?> ToolHandler<(Immediate, fn($($type),*))> for Function
        where
            Function: Fn($($type),*) -> Output + Send + Sync + 'static,
            Output: IntoToolOutput,
            $($generic: 'static,)?
        {
            type Arguments = $arguments;

            fn call(&self, $value: $arguments, $context: &ToolContext) -> ToolFuture<'static> {
                ToolFuture::ready(self($($passed),*).into_tool_output())
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

            fn call(&self, $value: $arguments, $context: &ToolContext) -> ToolFuture<'static> {
                later(self($($passed),*), IntoToolOutput::into_tool_output).into()
            }
        }
    )*};
}

handlers! {
    [] () (): |(), _| ();
    [Arguments] (Arguments) Arguments: |arguments, _| (arguments);
    [Arguments] (Arguments, ToolContext) Arguments: |arguments, context| (arguments, context.clone());
    [Arguments] (Arguments, &ToolContext) Arguments: |arguments, context| (arguments, context);
}
