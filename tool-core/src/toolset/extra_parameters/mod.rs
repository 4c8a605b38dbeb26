//! Extra parameters that are added to all tools of a set and read before the tool is called.

mod schema;
mod extra_arguments;

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use self::extra_arguments::ExtraArguments;
use crate::arguments::Contract;
use crate::model::ToolCall;
use crate::tool::{ToolError, decode_arguments};
use crate::toolset::redefined::Purpose;
use crate::toolset::{ToolSet, ToolSetError};

impl ToolSet {
    /// Adds parameters to all tools: the fields of a struct, which are passed to a function of the application on every
    /// call. See [`ExtraParameters`].
    ///
    /// # Errors
    ///
    /// Fails if a tool already has a parameter with one of the names, or if `T` is not a struct with named fields.
    pub fn extra_parameters<T>(self, extra: ExtraParameters<T>) -> Result<Self, ToolSetError> {
        self.with_extra_parameters(extra.arguments, type_name::<T>())
    }

    fn with_extra_parameters(self, extra: Option<ExtraArguments>, name: &str) -> Result<Self, ToolSetError> {
        let Some(extra) = extra.map(Arc::new) else {
            let reason = format!("`{name}` has no named fields to add to the parameters of tools");
            return Err(ToolSetError::extra_parameters(reason));
        };
        self.map_tools(|tool| {
            extra.add_to(tool).map_err(|reason| {
                let name = tool.get().definition().name();
                ToolSetError::extra_parameters(format!("the tool `{name}` {reason}"))
            })
        })
    }
}

/// Extra parameters for tools: the fields of `T`, which the model provides in addition to the tool's own, and a function
/// that receives them. The tool itself does not see them.
///
/// For example, an application can require a reason for every call of any tool.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use tool_core::toolset::ExtraParameters;
/// use tool_core::{ToolCall, ToolContext, tool, tools};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Thought {
///     /// Why you call this tool, in one sentence.
///     reason: String,
/// }
///
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let reasons = Arc::new(Mutex::new(Vec::new()));
/// let recorded = Arc::clone(&reasons);
/// let tools = tools![sum].extra_parameters(ExtraParameters::new(move |call: &ToolCall, thought: Thought| {
///     recorded.lock().unwrap().push(format!("{}: {}", call.name, thought.reason));
/// }))?;
///
/// let call = ToolCall::new("call_1", "sum", r#"{"a": 2, "b": 40, "reason": "to add them"}"#);
/// let output = tools.call(&call, &ToolContext::new()).await?;
/// assert_eq!(output.to_string(), "42.0");
/// assert_eq!(reasons.lock().unwrap()[..], ["sum: to add them"]);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct ExtraParameters<T> {
    /// `None` if `T` has no named fields.
    arguments: Option<ExtraArguments>,
    fields: PhantomData<fn(T)>,
}

impl<T: DeserializeOwned + JsonSchema + 'static> ExtraParameters<T> {
    /// Creates extra parameters with a function that receives the call as the model wrote it and the fields, before the
    /// tool is called.
    ///
    /// The function runs in the task that executes the call, so it must not block. It is called even if the tool's own
    /// arguments are invalid.
    pub fn new(handler: impl Fn(&ToolCall, T) + Send + Sync + 'static) -> Self {
        Self::validating(move |call, fields| {
            handler(call, fields);
            Ok(())
        })
    }

    /// Creates extra parameters like [`new`](Self::new), with a function that can refuse the call: the tool is not called,
    /// and the model receives the error.
    ///
    /// ```
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Thought { confidence: f64 }
    /// use tool_core::toolset::ExtraParameters;
    /// use tool_core::ToolError;
    ///
    /// let extra = ExtraParameters::validating(|_, thought: Thought| match thought.confidence {
    ///     low if low < 0.5 => Err(ToolError::failed("too uncertain: ask the user first")),
    ///     _ => Ok(()),
    /// });
    /// ```
    pub fn validating(
        handler: impl Fn(&ToolCall, T) -> Result<(), ToolError> + Send + Sync + 'static,
    ) -> Self {
        let handler = move |call: &ToolCall, text: &str, contract: &Contract, mode, purpose| {
            let (fields, repairs) = decode_arguments(text, contract, mode)?;
            if purpose == Purpose::Call {
                handler(call, fields)?;
            }
            Ok(repairs)
        };
        Self { arguments: ExtraArguments::new::<T>(Box::new(handler)), fields: PhantomData }
    }

    /// Passes the fields to the tool as well, together with its own arguments. This is for tools that accept them: a
    /// `#[tool]` function refuses arguments that it does not have.
    pub fn pass_to_tool(mut self) -> Self {
        if let Some(arguments) = &mut self.arguments {
            arguments.passes_to_tool = true;
        }
        self
    }
}

/// Prints the name of the type.
impl<T> fmt::Debug for ExtraParameters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtraParameters({})", type_name::<T>())
    }
}
