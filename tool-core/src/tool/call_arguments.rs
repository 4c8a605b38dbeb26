//! Typed access to the arguments of a call before it is executed.

use crate::arguments::Mode;
use crate::model::ToolCall;
use crate::tool::{ToolArguments, ToolError, arguments_contract, decode_arguments};

impl ToolCall {
    /// Parses the arguments as a type of the application, for decisions that depend on them: see
    /// [`AgentBuilder::needs_approval`](crate::agent::AgentBuilder::needs_approval).
    ///
    /// The arguments are repaired as a tool repairs them, so both see the same values: serde alone would refuse the
    /// `"900"` that a tool accepts as a number. The struct needs only the relevant arguments; others are ignored.
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
    /// Returns the error that the model would read if the arguments do not match the type.
    pub fn arguments_as<T: ToolArguments>(&self) -> Result<T, ToolError> {
        let mode = Mode { forbids_repair: false, ignores_unknown: true };
        let (arguments, _) = decode_arguments(&self.arguments, &arguments_contract::<T>(), mode)?;
        Ok(arguments)
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
    fn parses_arguments_like_a_tool() {
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
            let parsed = ToolCall::new("call_1", "pay", arguments).arguments_as::<Payment>();
            let euros = parsed.map(|payment| payment.euros).map_err(|error| error.to_string());
            assert_eq!(euros.as_ref().map_err(String::as_str).copied(), expected, "{arguments}");
        }
    }
}
