//! Typed access to the arguments of a call before it is executed.

use crate::arguments::Mode;
use crate::model::ToolCall;
use crate::tool::{ToolArguments, ToolError, arguments_contract, decode_arguments};

impl ToolCall {
    /// Parses the arguments as a type of the application, for decisions that depend on them: see
    /// [`AgentBuilder::needs_approval`](crate::agent::AgentBuilder::needs_approval).
    ///
    /// The arguments are repaired as a tool repairs them, so both see the same values: serde alone would refuse the
    /// `"900"` that a tool accepts as a number. The struct needs only the relevant arguments; others are ignored, but
    /// refused by a struct with `#[serde(deny_unknown_fields)]`. A decision must not search the text in
    /// [`arguments`](Self::arguments), where `"\/etc"` means `"/etc"`.
    ///
    /// As a [`serde_json::Value`], all arguments are read, for decisions about several tools. Without a type, `"900"` remains a
    /// string.
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
    use serde_json::Value;

    use crate::model::ToolCall;

    #[derive(Deserialize, JsonSchema)]
    struct Payment {
        euros: u32,
    }

    #[test]
    fn reads_the_values_that_a_tool_reads_however_they_are_written() {
        let path = |text: &str| {
            let arguments = ToolCall::new("call_1", "read", text).arguments_as::<Value>();
            arguments.map(|arguments| arguments["path"].clone()).map_err(|error| error.to_string())
        };
        for text in [
            r#"{"path": "/etc/passwd"}"#,
            r#"{"path": "\/etc\/passwd"}"#,
            r#"{"p\u0061th": "\u002fetc/passwd"}"#,
            r#"{'path': '/etc/passwd',}"#,
            "```json\n{\"path\": \"\\/etc/passwd\"}\n```",
            r#""{\"path\":\"/etc\\/passwd\"}""#,
        ] {
            assert_eq!(path(text), Ok("/etc/passwd".into()), "{text}");
        }
        for text in ["", "null", "{}"] {
            assert_eq!(path(text), Ok(Value::Null), "{text}");
        }
        let twice = r#"{"path": "/tmp", "path": "\/etc\/passwd"}"#;
        assert_eq!(path(twice), Err("invalid arguments: `path` is given twice".into()));
        let no_object = "invalid arguments: expected a JSON object, got a list";
        assert_eq!(path("[]"), Err(no_object.into()));
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
