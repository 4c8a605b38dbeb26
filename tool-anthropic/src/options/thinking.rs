//! The model's thinking.

use serde_json::{Value, json};

/// The smallest budget that the API accepts.
const MIN_BUDGET: u32 = 1024;

/// How the model thinks before it answers and between calls. Without it, the model's default applies; each model refuses some of
/// these modes. How much it thinks is [`ModelOptions::reasoning_effort`](tool_core::ModelOptions::reasoning_effort).
///
/// ```
/// use tool_anthropic::{Anthropic, Thinking};
///
/// let anthropic = Anthropic::builder().api_key("…").build()?;
/// let model = anthropic.chat_model("claude-opus-5-5").thinking(Thinking::adaptive().summarized());
/// # let _ = model;
/// # Ok::<_, tool_anthropic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Thinking {
    mode: Mode,
    display: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Adaptive,
    Budget(u32),
    BetweenTools,
    Off,
}

impl Thinking {
    /// Lets the model decide when and how much it thinks.
    pub fn adaptive() -> Self {
        Self { mode: Mode::Adaptive, display: None }
    }

    /// Lets the model think up to a number of tokens, at least 1,024, for older models. They are part of the tokens of the reply. A
    /// call of a tool cannot be required at the same time.
    pub fn budget(tokens: u32) -> Self {
        Self { mode: Mode::Budget(tokens), display: None }
    }

    /// Lets the model think only between calls of tools.
    pub fn between_tools() -> Self {
        Self { mode: Mode::BetweenTools, display: None }
    }

    /// Switches thinking off.
    pub fn off() -> Self {
        Self { mode: Mode::Off, display: None }
    }

    /// Returns a summary of the thinking, which is [`Event::Reasoning`](tool_core::Event::Reasoning) in streams.
    pub fn summarized(mut self) -> Self {
        self.display = Some("summarized");
        self
    }

    /// Returns no text of the thinking, which is the default of newer models and faster.
    pub fn omitted(mut self) -> Self {
        self.display = Some("omitted");
        self
    }

    /// Returns the number of tokens of a manual budget.
    pub(crate) fn budget_tokens(self) -> Option<u32> {
        match self.mode {
            Mode::Budget(tokens) => Some(tokens),
            _ => None,
        }
    }

    /// Returns `true` if the model may think.
    pub(crate) fn is_on(self) -> bool {
        self.mode != Mode::Off
    }

    /// Returns why the API would reject this with a limit of tokens.
    pub(crate) fn find_violation(self, max_tokens: u32) -> Option<String> {
        let budget = self.budget_tokens()?;
        if budget < MIN_BUDGET {
            return Some(format!("`Thinking::budget` is {budget}; use at least {MIN_BUDGET} tokens"));
        }
        (max_tokens <= budget).then(|| {
            format!("`Thinking::budget` is {budget}, but the reply has at most {max_tokens} tokens; raise `max_output_tokens`")
        })
    }

    /// Returns the field of the request.
    pub(crate) fn to_json(self) -> Value {
        let mut json = match self.mode {
            Mode::Adaptive => json!({ "type": "adaptive" }),
            Mode::Budget(tokens) => json!({ "type": "enabled", "budget_tokens": tokens }),
            Mode::BetweenTools => json!({ "type": "between_tools" }),
            Mode::Off => json!({ "type": "disabled" }),
        };
        if let (Some(display), Mode::Adaptive | Mode::Budget(_)) = (self.display, self.mode) {
            json["display"] = display.into();
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_field() {
        let table = [
            (Thinking::adaptive().omitted(), json!({ "type": "adaptive", "display": "omitted" })),
            (Thinking::budget(2048), json!({ "type": "enabled", "budget_tokens": 2048 })),
            (Thinking::between_tools().summarized(), json!({ "type": "between_tools" })),
            (Thinking::off(), json!({ "type": "disabled" })),
        ];
        for (thinking, expected) in table {
            assert_eq!(thinking.to_json(), expected);
        }
    }

    #[test]
    fn a_budget_has_limits() {
        let table = [
            (Thinking::budget(1000), 2000, Some("`Thinking::budget` is 1000; use at least 1024 tokens")),
            (
                Thinking::budget(2000),
                2000,
                Some(
                    "`Thinking::budget` is 2000, but the reply has at most 2000 tokens; raise `max_output_tokens`",
                ),
            ),
            (Thinking::budget(2000), 2001, None),
            (Thinking::adaptive(), 1, None),
        ];
        for (thinking, max_tokens, expected) in table {
            assert_eq!(thinking.find_violation(max_tokens).as_deref(), expected);
        }
    }
}
