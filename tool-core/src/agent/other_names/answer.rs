//! Other names for the text of an answer.

use crate::run::Answer;

impl Answer {
    #[doc(hidden)]
    #[deprecated = "the text of an answer is `answer.text()`; for a value of a type, write `agent.ask(\"…\").answer_as::<T>().await?`"]
    #[must_use]
    pub fn output(&self) -> &str {
        self.text()
    }

    #[doc(hidden)]
    #[deprecated = "the text of an answer is `answer.text()`; for a value of a type, write `agent.ask(\"…\").answer_as::<T>().await?`"]
    #[must_use]
    pub fn final_output(&self) -> &str {
        self.text()
    }

    #[doc(hidden)]
    #[deprecated = "the text of an answer is `answer.text()`"]
    #[must_use]
    pub fn content(&self) -> &str {
        self.text()
    }
}
