//! The arguments of a call, read by the application before the call is made.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;

use crate::model::ToolCall;
use crate::tool::{FunctionTool, Reading, Tool, ToolArguments, ToolContext, ToolError};

impl ToolCall {
    /// The arguments as a struct of one's own, to decide by what a call is made with: see
    /// [`AgentBuilder::needs_approval`](crate::agent::AgentBuilder::needs_approval).
    ///
    /// They are mended as a tool mends them, so both see the same value; read by serde alone, the `"900"` which a tool takes
    /// for a number is an error. The struct needs those arguments only that matter; others are left aside.
    ///
    /// ```
    /// use tool_core::ToolCall;
    /// use tool_core::schemars::JsonSchema;
    ///
    /// #[derive(serde::Deserialize, JsonSchema)]
    /// struct Payment {
    ///     euros: u32,
    /// }
    ///
    /// let call = ToolCall::new("call_1", "pay", r#"{"to": "Ada", "euros": "900"}"#);
    /// assert_eq!(call.arguments_as::<Payment>()?.euros, 900);
    /// # Ok::<_, tool_core::ToolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The arguments are not what the struct takes; the error is the one that the model would read.
    pub fn arguments_as<T: ToolArguments + Send>(&self) -> Result<T, ToolError> {
        let read = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&read);
        let put = move |arguments: T| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(arguments);
        };
        let reading = Reading { is_strict: false, ignores_unknown: true };
        let context = ToolContext::new().of_call(self, reading);
        let outcome = FunctionTool::new(&*self.name, "", put).call(&self.arguments, &context).now_or_never();
        let read = read.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (read, outcome) {
            (Some(arguments), _) => Ok(arguments),
            (None, Some(Err(error))) => Err(error),
            (None, _) => Err(ToolError::invalid_arguments("they are not those of the type")),
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use crate::model::ToolCall;

    #[derive(Deserialize, JsonSchema)]
    struct Payment {
        euros: u32,
    }

    #[test]
    fn arguments_are_read_as_a_tool_reads_them() {
        let cases = [
            (r#"{"euros": 900}"#, Ok(900)),
            (r#"{"euros": "900"}"#, Ok(900)),
            (r#"{"euros": 900.0,}"#, Ok(900)),
            (r#"{"euros": 900, "to": "Ada", "note": {"x": []}}"#, Ok(900)),
            (
                r#"{"to": "Ada"}"#,
                Err("invalid arguments: `euros` is missing, expected an integer from 0 to 4294967295"),
            ),
            (
                r#"{"euros": "many"}"#,
                Err(r#"invalid arguments: `euros`: expected an integer from 0 to 4294967295, got "many""#),
            ),
        ];
        for (arguments, expected) in cases {
            let read = ToolCall::new("call_1", "pay", arguments).arguments_as::<Payment>();
            let read = read.map(|payment| payment.euros).map_err(|error| error.to_string());
            assert_eq!(read.as_ref().map_err(String::as_str).copied(), expected, "{arguments}");
        }
    }
}
