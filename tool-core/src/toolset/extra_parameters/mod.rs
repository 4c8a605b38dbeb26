//! Parameters that are added to those of every tool of a set, and read on the way to the tool.

mod augmented;
mod reading;
mod schema;

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use self::augmented::{Augmented, Shared};
use crate::arguments::Parameter;
use crate::model::ToolCall;
use crate::tool::ToolError;
use crate::toolset::{ToolRef, ToolSet, ToolSetError};

impl ToolSet {
    /// The same tools, each with more parameters: the fields of a struct, which a function of yours is
    /// handed on every call. See [`ExtraParameters`].
    ///
    /// # Errors
    ///
    /// A tool has a parameter of that name already, or the type of the augmentation is no struct with named
    /// fields.
    pub fn extra_parameters<T>(&self, augmentation: ExtraParameters<T>) -> Result<Self, ToolSetError> {
        self.with_extra_parameters(augmentation.shared, type_name::<T>())
    }

    fn with_extra_parameters(&self, shared: Option<Shared>, name: &str) -> Result<Self, ToolSetError> {
        let Some(shared) = shared.map(Arc::new) else {
            let why = format!("`{name}` has no named fields that could be added to the parameters of tools");
            return Err(ToolSetError::extra_parameters(why));
        };
        self.map(|tool| match Augmented::new(tool.clone(), Arc::clone(&shared)) {
            Ok(augmented) => Ok(ToolRef::Shared(Arc::new(augmented))),
            Err(why) => {
                let name = tool.get().definition().name();
                Err(ToolSetError::extra_parameters(format!("the tool `{name}` {why}")))
            }
        })
    }
}

/// More parameters for tools: the fields of `T`, which the model fills in beside those of a tool, and a
/// function that is handed them. The tool does not know of them.
///
/// So an application learns, for instance, why the model calls a tool, from all tools alike.
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
/// let kept = Arc::clone(&reasons);
/// let tools = tools![sum].extra_parameters(ExtraParameters::new(move |call: &ToolCall, thought: Thought| {
///     kept.lock().unwrap().push(format!("{}: {}", call.name, thought.reason));
/// }))?;
///
/// let call = ToolCall::new("call_1", "sum", r#"{"a": 2, "b": 40, "reason": "to add them"}"#);
/// let output = tools.call(&call, &ToolContext::new()).await?;
/// assert_eq!(output.to_string(), "42.0");
/// assert_eq!(reasons.lock().unwrap()[..], ["sum: to add them"]);
/// # Ok(())
/// # }
/// ```
pub struct ExtraParameters<T> {
    /// `None` if `T` has no named fields.
    shared: Option<Shared>,
    of: PhantomData<fn(T)>,
}

impl<T: DeserializeOwned + JsonSchema + 'static> ExtraParameters<T> {
    /// The function is handed the call as the model wrote it, and the fields, before the tool runs.
    ///
    /// It runs in the task that makes the call, so it must not block. If the tool's own arguments are wrong, it
    /// was handed its fields all the same.
    #[must_use]
    pub fn new(hand: impl Fn(&ToolCall, T) + Send + Sync + 'static) -> Self {
        Self::refusing(move |call, fields| {
            hand(call, fields);
            Ok(())
        })
    }

    /// The same, but the function may refuse the call: the tool does not run, and the model reads the error.
    ///
    /// ```
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Thought { confidence: f64 }
    /// use tool_core::toolset::ExtraParameters;
    /// use tool_core::ToolError;
    ///
    /// let augmentation = ExtraParameters::refusing(|_, thought: Thought| match thought.confidence {
    ///     low if low < 0.5 => Err(ToolError::failed("too uncertain: ask the user first")),
    ///     _ => Ok(()),
    /// });
    /// ```
    #[must_use]
    pub fn refusing(hand: impl Fn(&ToolCall, T) -> Result<(), ToolError> + Send + Sync + 'static) -> Self {
        let hand = move |call: &ToolCall, text: &str| Ok(hand(call, serde_json::from_str(text)?));
        Self { shared: Shared::of(Parameter::new::<T>("", None, true), Box::new(hand)), of: PhantomData }
    }

    /// The fields stay among the arguments that the tool is given, which is for tools that know of them: a
    /// `#[tool]` function refuses arguments that it does not have.
    #[must_use]
    pub fn keep(mut self) -> Self {
        if let Some(shared) = &mut self.shared {
            shared.is_kept = true;
        }
        self
    }
}

/// Names the type.
impl<T> fmt::Debug for ExtraParameters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtraParameters({})", type_name::<T>())
    }
}
