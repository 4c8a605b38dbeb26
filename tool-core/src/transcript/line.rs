//! Calls and executions on one line.

use std::fmt;

use super::texts::{MAX_NAME_CHARS, annotations, sanitize, sanitize_name, text_of};
use super::transcript::DEFAULT_TEXT_CHARS;
use crate::content::JsonText;
use crate::model::ToolCall;
use crate::tool::{ToolErrorKind, ToolExecution};

/// Writes the name and the arguments on one line, each shortened if it is very long; `{:#}` writes them whole, for a person who
/// approves the call. What a person does not see is escaped, as [`printable`](crate::provider::printable) does. Show it only to
/// people who are allowed to see arguments.
impl fmt::Display for ToolCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max_chars = |chars| if f.alternate() { usize::MAX } else { chars };
        let name = sanitize_name(&self.name, max_chars(MAX_NAME_CHARS));
        let arguments = sanitize(self.arguments.trim(), max_chars(DEFAULT_TEXT_CHARS));
        // Only outside of its strings does JSON contain line breaks, and there they mean nothing.
        let (line_break, tab) = match JsonText::from_json(&self.arguments) {
            Ok(_) => (" ", " "),
            Err(_) => (r"\u{a}", r"\u{9}"),
        };
        write!(f, "{name} {}", arguments.replace('\n', line_break).replace('\t', tab))
    }
}

/// Writes the call and its outcome on one line, as a [`Transcript`](crate::signatures::Transcript) does on several. Show it
/// only to people who are allowed to see arguments and outputs.
impl fmt::Display for ToolExecution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.call())?;
        let annotations = annotations(self);
        match self.outcome() {
            Ok(output) => write!(f, " returns{annotations}: {}", one_line(&text_of(output.content()))),
            Err(error) if error.kind() == ToolErrorKind::NotExecuted => {
                write!(f, " is not executed: {}", one_line(&error.to_string()))
            }
            Err(error) => write!(f, " fails{annotations}: {}", one_line(&error.to_string())),
        }
    }
}

/// Returns a text as a single line.
fn one_line(text: &str) -> String {
    sanitize(text.trim(), DEFAULT_TEXT_CHARS).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use crate::model::ToolCall;
    use crate::tool::{ToolError, ToolExecution, ToolOutput};

    #[test]
    fn calls_and_executions_are_one_line() {
        let call = ToolCall::new("1", "s\num", "{\n\t\"a\": \"\u{202e}[2J\"\r\n}");
        let shown = r#"s um {  "a": "\u{202e}[2J" }"#;
        assert_eq!(call.to_string(), shown);
        let timed = |outcome| {
            ToolExecution::new(call.clone(), outcome)
                .with_timing(SystemTime::UNIX_EPOCH, Duration::from_micros(1500))
                .to_string()
        };
        assert_eq!(timed(Ok(ToolOutput::text("4\n2"))), format!("{shown} returns (1.5ms): 4 2"));
        assert_eq!(timed(Err(ToolError::failed("no\nclock"))), format!("{shown} fails (1.5ms): no clock"));
        let skipped = timed(Err(ToolError::not_executed("the run had ended")));
        assert_eq!(skipped, format!("{shown} is not executed: the call was not executed: the run had ended"));
        let long = ToolCall::new("1", "sum", "x".repeat(2001)).to_string();
        assert!(long.ends_with("xx [… 1 more character]"), "{long}");
    }

    #[test]
    fn alternate_form_shows_calls_whole() {
        let call = ToolCall::new("1", "n".repeat(100), format!("\"{}\u{200b}\"", "x".repeat(3000)));
        let expected = format!("{} \"{}\\u{{200b}}\"", "n".repeat(100), "x".repeat(3000));
        assert_eq!(format!("{call:#}"), expected);
    }

    #[test]
    fn line_breaks_in_strings_are_escaped() {
        let call = ToolCall::new("1", "sh", "{\"run\": \"ls\n\trm x\"}");
        assert_eq!(call.to_string(), r#"sh {"run": "ls\u{a}\u{9}rm x"}"#);
    }

    #[test]
    fn debug_shows_the_text_of_an_error_but_no_arguments() {
        let failed = ToolError::failed("no such city");
        assert_eq!(format!("{failed:?}"), "ToolError(Failed: no such city)");
        let invalid = ToolError::invalid_arguments("`x`: expected a number, got \"secret\"");
        assert_eq!(format!("{invalid:?}"), "ToolError(InvalidArguments, 36 bytes)");
        let execution = ToolExecution::new(ToolCall::new("1", "find", "{}"), Err(failed));
        assert!(!format!("{execution:?}").contains("city"), "{execution:?}");
    }
}
